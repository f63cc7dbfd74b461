#include "exec/state/snapshot.hpp"

#include <cassert>
#include <cstring>

namespace stretto::exec {
namespace {

// Calls fn(begin, bytes) for each persistent storage of each rank in this process, in one order.
template <class Fn>
void for_state(const Schedule& schedule, Executor& executor, Fn fn) {
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
    if (!executor.is_here(rank)) continue;
    host::RankMemory& memory = executor.memory(rank);
    for (StorageId id = 0; id < schedule.storages.size(); ++id)
      if (is_persistent(schedule.storages[id].kind) && memory.has(id))
        fn(memory.at(id), static_cast<std::size_t>(schedule.storages[id].bytes()));
  }
}

}  // namespace

void Snapshot::take(const Schedule& schedule, Executor& executor) {
  executor.download(Executor::Contents::state);
  std::size_t size = 0;
  for_state(schedule, executor, [&](const std::byte*, std::size_t bytes) { size += bytes; });
  bytes_.resize(size);
  std::size_t at = 0;
  for_state(schedule, executor, [&](const std::byte* begin, std::size_t bytes) {
    std::memcpy(bytes_.data() + at, begin, bytes);
    at += bytes;
  });
}

void Snapshot::restore(const Schedule& schedule, Executor& executor) const {
  std::size_t at = 0;
  for_state(schedule, executor, [&](std::byte* begin, std::size_t bytes) {
    assert(at + bytes <= bytes_.size());
    std::memcpy(begin, bytes_.data() + at, bytes);
    at += bytes;
  });
  executor.upload(Executor::Contents::state);
}

}  // namespace stretto::exec
