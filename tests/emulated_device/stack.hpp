#pragma once
// Stacks of their own for emulated threads, and going from one to another.
#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
// Of functions that never return because their stack begins anew: who has it next must find nothing poisoned.
#define LEFT_FOR_GOOD __attribute__((no_sanitize_address))
#else
#define LEFT_FOR_GOOD
#endif

namespace stretto::cuda::emulate {

// Where somebody waits who has left a stack, and which stack that is.
struct Place {
  void* at = nullptr;
  const void* stack = nullptr;
  std::size_t bytes = 0;
};

class Stack {
 public:
  // The stack anew, with `function` about to begin on it. It calls arrived() first, and never returns.
  Place begin(void (*function)());

 private:
  // Not a multiple of a page: what the lanes of a warp work with would all be in the same few sets of the caches.
  static constexpr std::size_t kBytes = 65 << 10;
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
#if !defined(__x86_64__)
  ucontext_t beginning_;
#endif
};

// Leaves this stack for another; returns when somebody goes to `from`.
void go(Place& from, const Place& to);
void arrived();

}  // namespace stretto::cuda::emulate
