#pragma once
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdio>

#include "tests/fuzz/allocator.hpp"

namespace stretto::fuzz {

// A bound on a reader's memory and time: no length that an input names may be trusted. An excess traps, while the
// object lives or at its end. At most one object lives at a time.
class Bounded {
 public:
  // In proportion to the input: an allocation has at most 16 times the input's size (and 256 KiB, for messages, and
  // tables of keys and gates), all together at most `factor` times the size and 1 MiB.
  Bounded(std::size_t size, std::size_t factor)
      : Bounded(16 * size + (std::size_t{256} << 10), factor * size + (std::size_t{1} << 20), 0) {}
  // Any input: 256 MiB, and 1 s of processor time.
  Bounded() : Bounded(std::size_t{256} << 20, std::size_t{256} << 20, 1) {}
  ~Bounded() {
    most_at_once = 0;
    const double took_s = processor_s() - begin_s_;
    if (most_s_ == 0 || took_s <= kSlowdown * most_s_) return;
    std::fprintf(stderr, "the reader took %.2f s of processor time, at most %.2f\n", took_s, kSlowdown * most_s_);
    __builtin_trap();
  }
  Bounded(const Bounded&) = delete;
  Bounded& operator=(const Bounded&) = delete;

 private:
  // The sanitizers and -O1 make a reader this many times slower.
  static constexpr double kSlowdown = 8;

  Bounded(std::size_t at_once, std::size_t all, double most_s) : most_s_(most_s), begin_s_(processor_s()) {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    if (installed == 0) __builtin_trap();
    live = 0;
    most_at_once = at_once;
    most = all;
  }

  static double processor_s() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  static inline std::atomic<std::size_t> most_at_once = 0, most = 0;  // 0: no object lives
  static inline std::atomic<std::ptrdiff_t> live = 0;

  static void on_malloc(const volatile void*, std::size_t size) {
    if (most_at_once == 0) return;
    live += static_cast<std::ptrdiff_t>(size);
    if (size > most_at_once || live > static_cast<std::ptrdiff_t>(most.load())) __builtin_trap();
  }
  static void on_free(const volatile void* pointer) {
    if (most_at_once != 0 && pointer != nullptr)
      live -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(pointer));
  }

  double most_s_, begin_s_;
};

}  // namespace stretto::fuzz
