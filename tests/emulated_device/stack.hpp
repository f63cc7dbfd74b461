#pragma once
// Separate stacks for emulated threads, and switches between them.
#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
// For functions that never return because their stack is reused: its next user must find nothing poisoned.
#define LEFT_FOR_GOOD __attribute__((no_sanitize_address))
#else
#define LEFT_FOR_GOOD
#endif

namespace stretto::cuda::emulate {

// A point at which a stack was left, and the stack.
struct Place {
  void* at = nullptr;
  const void* stack = nullptr;
  std::size_t bytes = 0;
};

class Stack {
 public:
  // Returns the stack with `function` about to begin on it. The function calls arrived() first, and never returns.
  Place begin(void (*function)());

 private:
  // The size is not a multiple of a page; otherwise the hot data of a warp's lanes would share a few sets of the
  // caches.
  static constexpr std::size_t kBytes = 65 << 10;
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
#if !defined(__x86_64__)
  ucontext_t beginning_;
#endif
};

// Leaves this stack for another; returns when some stack switches to `from`.
void go(Place& from, const Place& to);
void arrived();

}  // namespace stretto::cuda::emulate
