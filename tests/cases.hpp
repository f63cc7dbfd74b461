#pragma once
#include <cstdint>
#include <cstdlib>

namespace stretto::testing {

// A sanitizer's build is many times slower, and threads that do next to nothing between two waits take longer than the
// serial executor: such runs take only some cases of long lists. Random layouts draw from the other cases.
// kCaseStride is the share of a sanitizer's build.
#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kCaseStride = 7, kThreadedStride = 1;
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kCaseStride = 14, kThreadedStride = 3;
#else
constexpr std::uint32_t kCaseStride = 1, kThreadedStride = 3;
#endif
constexpr bool kIsSanitized = kCaseStride > 1;

// `scripts/test --fast` runs a few cases of each list, `scripts/test` a third of them in the release build, and
// `scripts/soak` all.
inline bool is_fast_suite() { return std::getenv("STRETTO_FAST_SUITE") != nullptr; }
inline bool is_soak() { return std::getenv("STRETTO_ALL_CASES") != nullptr; }
constexpr std::uint32_t kFastStride = 16, kReleaseStride = kCaseStride == 1 ? 3 : 1;
// Returns `all`, or the share of it that the fast suite runs.
inline int share_of(int all) { return is_fast_suite() ? (all + int{kFastStride} - 1) / int{kFastStride} : all; }

// Longer runs state their numbers in the environment: seeds, cases.
inline std::uint64_t from_environment(const char* name, std::uint64_t fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : fallback;
}

class Cases {
 public:
  // Takes one in `stride` of the cases that this run takes, scattered over the list; the first always.
  explicit Cases(std::uint32_t stride = 1)
      : stride_(stride * kCaseStride *
                (is_fast_suite() ? kFastStride
                 : is_soak()     ? 1
                                 : kReleaseStride)) {}
  bool takes_next() { return (next_++ * 2'654'435'761U >> 16) % stride_ == 0; }

 private:
  std::uint32_t stride_, next_ = 0;
};

}  // namespace stretto::testing
