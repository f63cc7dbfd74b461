#pragma once
// Threads that behave as processes of a group: each has a connection of its own, and they share nothing else.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/state/model_state.hpp"

namespace stretto::testing {

// Returns the world of rank 0 of `size`, with a socket that already listens.
inline launch::World reserve_world(std::int64_t size) {
  const launch::Socket listening = launch::listen_on("127.0.0.1", 0);
  launch::World world;
  world.size = size;
  world.address = "127.0.0.1";
  world.port = launch::port_of(listening);
  world.listening = ::fcntl(listening.descriptor(), F_DUPFD_CLOEXEC, 0);
  world.launcher = "a test";
  return world;
}

// Calls `run` as each rank, or as each of `ranks`; returns the message of each thrown exception.
inline std::vector<std::string> as_processes(std::int64_t size, double timeout_s,
                                             const std::function<void(launch::ProcessGroup&)>& run,
                                             std::vector<std::int64_t> ranks = {}) {
  const launch::World first = reserve_world(size);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    threads.emplace_back([&, rank] {
      launch::World world = first;
      world.rank = world.local_rank = rank;
      if (rank != 0) world.listening = -1;
      try {
        launch::ProcessGroup group(world, timeout_s);
        try {
          run(group);
        } catch (const Error& error) {
          // as the program does, so that the others need not wait for their timeout
          group.fail(error.what(), error.kind());
          throw;
        }
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Returns gather_state() over the memory of all processes, at rank 0; nothing elsewhere.
inline std::vector<exec::FullTensor> gather_from_all(const Schedule& schedule, const exec::MemoryOf& memory_of,
                                                     StatePart part, launch::ProcessGroup& group) {
  const auto all = group.all_gather_value(&memory_of(group.rank()));
  std::vector<exec::FullTensor> state;
  if (group.rank() == 0)
    state = exec::gather_state(
        schedule, [&](std::int64_t rank) { return all[static_cast<std::size_t>(rank)]; }, part);
  group.barrier();
  return state;
}

}  // namespace stretto::testing
