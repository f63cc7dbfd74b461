#include "exec/cuda/emulate.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cassert>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace stretto::cuda::emulate {
namespace {

constexpr std::size_t kStack_bytes = 64 << 10;
constexpr unsigned kLanes = 32;

enum class State : std::uint8_t { ready, at_block_barrier, at_warp_barrier, done };

// Lives from kernel to kernel: it runs the body once whenever it is entered after having been done.
struct Fiber {
  ucontext_t context;
  jmp_buf at;  // where it left
  bool has_started = false;
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStack_bytes);
  Thread thread;
  State state = State::done;
  std::uint64_t offered = 0;  // in a shuffle
};

struct Machine {
  std::vector<Fiber> fibers;
  ucontext_t scheduler;
  jmp_buf scheduler_at;
  Fiber* current = nullptr;
  const std::function<void()>* body = nullptr;
};
// One for each host thread, since fibers stay with theirs; __shared__ variables are one for all, so that only one runs.
thread_local Machine machine;
std::mutex running;
thread_local Streams streams;

#if defined(__SANITIZE_ADDRESS__)

// ASan must be told which stack is in use.
thread_local const void* scheduler_stack = nullptr;
thread_local std::size_t scheduler_stack_bytes = 0;

void enter(Fiber& fiber) {
  machine.current = &fiber;
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, fiber.stack.get(), kStack_bytes);
  swapcontext(&machine.scheduler, &fiber.context);
  __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
}

void leave(State state) {
  Fiber& fiber = *machine.current;
  fiber.state = state;
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, scheduler_stack, scheduler_stack_bytes);
  swapcontext(&fiber.context, &machine.scheduler);
  __sanitizer_finish_switch_fiber(mine, &scheduler_stack, &scheduler_stack_bytes);
}

#else

// swapcontext makes two system calls; a jump makes none.
void enter(Fiber& fiber) {
  machine.current = &fiber;
  if (_setjmp(machine.scheduler_at) != 0) return;
  if (fiber.has_started) _longjmp(fiber.at, 1);
  fiber.has_started = true;
  setcontext(&fiber.context);
}

void leave(State state) {
  Fiber& fiber = *machine.current;
  fiber.state = state;
  if (_setjmp(fiber.at) == 0) _longjmp(machine.scheduler_at, 1);
}

#endif

void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
  while (true) {
    (*machine.body)();
    leave(State::done);
  }
}

void create(std::vector<Fiber>& fibers, std::size_t count) {
  fibers = std::vector<Fiber>(count);
  for (Fiber& fiber : fibers) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }
}

// Lets every fiber of [begin, end) go on that waits in `state`, if all of them do; returns whether it did.
bool release(std::size_t begin, std::size_t end, State state) {
  for (std::size_t i = begin; i < end; ++i)
    if (machine.fibers[i].state != state) return false;
  for (std::size_t i = begin; i < end; ++i) machine.fibers[i].state = State::ready;
  return true;
}

void run_block(std::size_t threads) {
  while (true) {
    std::size_t done = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      if (machine.fibers[i].state == State::ready) enter(machine.fibers[i]);
      done += machine.fibers[i].state == State::done;
    }
    if (done == threads) return;
    bool moved = release(0, threads, State::at_block_barrier);
    for (std::size_t warp = 0; warp < threads; warp += kLanes)
      moved = release(warp, std::min(threads, warp + kLanes), State::at_warp_barrier) || moved;
    if (moved) continue;
    const Thread& at = machine.fibers[0].thread;
    const std::string where = std::to_string(at.block.x) + ", " + std::to_string(at.block.y);
    machine.fibers.clear();  // they are in the middle of something
    throw runtime_failure("block " + where + ": its threads wait at different barriers, or some have ended");
  }
}

}  // namespace

const Thread& self() { return machine.current->thread; }

void sync_threads() { leave(State::at_block_barrier); }

int lane() { return static_cast<int>((machine.current - machine.fibers.data()) % kLanes); }

std::uint64_t shuffle(std::uint64_t value, int from) {
  machine.current->offered = value;
  leave(State::at_warp_barrier);
  const auto me = static_cast<std::size_t>(machine.current - machine.fibers.data());
  const std::uint64_t theirs = machine.fibers[me / kLanes * kLanes + static_cast<std::size_t>(from)].offered;
  leave(State::at_warp_barrier);  // nobody offers anew before all have read
  return theirs;
}

void submit(void* stream, std::function<void()> work) {
  if (stream != nullptr && streams)
    streams(stream, std::move(work));
  else
    work();
}
void set_streams(Streams with) { streams = std::move(with); }

void run(dim3 grid, dim3 block, const std::function<void()>& thread) {
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  assert(threads > 0 && threads <= 1024 && grid.y <= 65535 && grid.z <= 65535);
  const std::lock_guard lock(running);
  if (machine.fibers.size() < threads) create(machine.fibers, threads);
  machine.body = &thread;
  for (unsigned bz = 0; bz < grid.z; ++bz)
    for (unsigned by = 0; by < grid.y; ++by)
      for (unsigned bx = 0; bx < grid.x; ++bx) {
        for (std::size_t i = 0; i < threads; ++i) {
          Fiber& fiber = machine.fibers[i];
          const auto n = static_cast<unsigned>(i);
          fiber.thread = {{n % block.x, n / block.x % block.y, n / (block.x * block.y)}, {bx, by, bz}, block, grid};
          fiber.state = State::ready;
        }
        run_block(threads);
      }
}

}  // namespace stretto::cuda::emulate
