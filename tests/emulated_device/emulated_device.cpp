#include "tests/emulated_device/emulated_device.hpp"

#include <algorithm>
#include <cassert>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/emulated_device/stack.hpp"

namespace stretto::cuda::emulate {
namespace {

constexpr std::size_t kLanes = 32;

enum class State : std::uint8_t { ready, at_block_barrier, at_warp_barrier, done };

// The threads of the running block. They begin in order, each on a stack of its own or on that of an earlier thread
// that has ended, so no thread uses the stack of one that has not begun.
struct Thread {
  dim3 index;
  State state = State::ready;
  bool has_begun = false;
  std::uint8_t turn = 0;  // parity of its warp's shuffles, even and odd ones
  // The value in the last shuffle of each parity: all lanes have read it before any lane writes again, since no lane is
  // two shuffles ahead.
  std::uint64_t offered[2] = {};
  Place place;
  Stack stack;
};

// One machine for all host threads, as __shared__ variables are global: only one host thread runs kernels at a time.
struct Machine {
  std::vector<Thread> threads;
  Thread *current = nullptr, *warp_end = nullptr;
  Place scheduler;
  const std::function<void()>* body = nullptr;
};
Machine machine;
std::mutex running;
thread_local Streams streams;

void begin_threads();

std::string text_of(dim3 size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

void become(Thread& thread) {
  machine.current = &thread;
  thread_index = thread.index;
  lane = static_cast<int>(static_cast<std::size_t>(&thread - machine.threads.data()) % kLanes);
}

// Lets a thread run, from another stack.
LEFT_FOR_GOOD void enter(Thread& thread, Place& from) {
  become(thread);
  if (!thread.has_begun) thread.place = thread.stack.begin(begin_threads);
  thread.has_begun = true;
  go(from, thread.place);
}

// Waits until the thread is entered again. The next thread of the warp goes on at once.
LEFT_FOR_GOOD void leave(State state) {
  Thread &thread = *machine.current, *next = &thread + 1;
  thread.state = state;
  if (next != machine.warp_end && next->state == State::ready)
    enter(*next, thread.place);
  else
    go(thread.place, machine.scheduler);
}

// The outermost function on a stack.
LEFT_FOR_GOOD void begin_threads() {
  arrived();
  while (true) {
    (*machine.body)();
    Thread &thread = *machine.current, *next = &thread + 1;
    if (next == machine.warp_end || next->has_begun) {
      leave(State::done);  // never entered again
    } else {
      thread.state = State::done;
      next->place = thread.place;
      next->has_begun = true;
      become(*next);
    }
  }
}

// Lets every thread of [begin, end) that waits in `state` go on, if all of them do; returns whether it did.
bool release(Thread* begin, Thread* end, State state) {
  if (!std::all_of(begin, end, [&](const Thread& thread) { return thread.state == state; })) return false;
  for (Thread* thread = begin; thread != end; ++thread) thread->state = State::ready;
  return true;
}

// Runs until no thread of the warp can go on.
void run_warp(Thread* begin, Thread* end) {
  machine.warp_end = end;
  do {
    for (Thread* thread = begin; thread != end; ++thread)
      if (thread->state == State::ready) enter(*thread, machine.scheduler);
  } while (release(begin, end, State::at_warp_barrier));
}

void run_block(std::size_t threads) {
  Thread *const begin = machine.threads.data(), *const end = begin + threads;
  for (Thread* thread = begin; thread != end; ++thread) {
    thread->state = State::ready;
    thread->has_begun = false;
  }
  do {
    for (Thread* warp = begin; warp < end; warp += kLanes) run_warp(warp, std::min(end, warp + kLanes));
  } while (release(begin, end, State::at_block_barrier));
  if (std::all_of(begin, end, [](const Thread& thread) { return thread.state == State::done; })) return;
  machine.threads.clear();  // their state is inconsistent
  throw runtime_failure("block " + std::to_string(block_index.x) + ", " + std::to_string(block_index.y) +
                        ": its threads wait at different barriers, or some have ended");
}

}  // namespace

void sync_threads() { leave(State::at_block_barrier); }

std::uint64_t shuffle(std::uint64_t value, int from) {
  Thread& thread = *machine.current;
  const std::size_t turn = thread.turn ^= 1;
  thread.offered[turn] = value;
  const Thread& other = *(&thread - lane + from);
  assert(&other < machine.warp_end && "a lane that there is");
  leave(State::at_warp_barrier);
  return other.offered[turn];
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
  if (threads == 0 || threads > 1024 || block.z > 64 || std::size_t{grid.x} * grid.y * grid.z == 0 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    throw runtime_failure("a device refuses " + text_of(grid) + " blocks of " + text_of(block) + " threads");
  const std::lock_guard lock(running);
  if (machine.threads.size() < threads) machine.threads = std::vector<Thread>(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    const auto n = static_cast<unsigned>(i);
    machine.threads[i].index = {n % block.x, n / block.x % block.y, n / (block.x * block.y)};
    machine.threads[i].turn = 0;
  }
  machine.body = &thread;
  block_size = block;
  grid_size = grid;
  for (unsigned bz = 0; bz < grid.z; ++bz)
    for (unsigned by = 0; by < grid.y; ++by)
      for (unsigned bx = 0; bx < grid.x; ++bx) {
        block_index = {bx, by, bz};
        run_block(threads);
      }
  if (std::exchange(is_misaligned, false))
    throw runtime_failure("a kernel reads or writes at an address that is not aligned");
}

}  // namespace stretto::cuda::emulate
