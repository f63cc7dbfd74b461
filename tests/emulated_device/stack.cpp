#include "tests/emulated_device/stack.hpp"

#include <algorithm>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace stretto::cuda::emulate {
namespace {

thread_local constinit Place* left = nullptr;  // place that was left last

#if defined(__x86_64__)

// Pushes the registers that a call preserves, stores the stack pointer in *from, and takes both from `to`.
// swapcontext() would make two system calls, and AddressSanitizer would lose its knowledge of the stack.
extern "C" void stretto_switch_stack(void** from, void* to);
asm(R"(
  .text
  .type stretto_switch_stack, @function
stretto_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size stretto_switch_stack, . - stretto_switch_stack
)");

#else

void stretto_switch_stack(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

#endif

void arrived_with([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &left->stack, &left->bytes);
#endif
}

}  // namespace

Place Stack::begin(void (*function)()) {
#if defined(__x86_64__)
  // The frame looks as if `function` had been called without a caller, with six registers saved.
  const auto end = reinterpret_cast<std::uintptr_t>(bytes_.get() + kBytes);
  void** const at = reinterpret_cast<void**>(end / 16 * 16) - 8;
  std::fill(at, at + 8, nullptr);
  at[6] = reinterpret_cast<void*>(function);
#else
  ucontext_t* const at = &beginning_;
  getcontext(at);
  at->uc_stack.ss_sp = bytes_.get();
  at->uc_stack.ss_size = kBytes;
  at->uc_link = nullptr;
  makecontext(at, function, 0);
#endif
  return {at, bytes_.get(), kBytes};
}

LEFT_FOR_GOOD void go(Place& from, const Place& to) {
  left = &from;
  void* fake_stack = nullptr;
#if defined(__SANITIZE_ADDRESS__)  // the sanitizer must know which stack is in use
  __sanitizer_start_switch_fiber(&fake_stack, to.stack, to.bytes);
#endif
  stretto_switch_stack(&from.at, to.at);
  arrived_with(fake_stack);
}
void arrived() { arrived_with(nullptr); }

}  // namespace stretto::cuda::emulate
