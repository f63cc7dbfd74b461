#include "report/live_memory.hpp"

#include <algorithm>
#include <map>

#include "model/schedule/footprint.hpp"

namespace stretto {
namespace {

bool comes_and_goes(BufferKind kind) {
  return kind == BufferKind::gradient || kind == BufferKind::activation || kind == BufferKind::workspace;
}

}  // namespace

std::vector<LiveMemory> live_memory(const Schedule& schedule, const BoundProgram& program,
                                    const std::vector<const TimelineRow*>& rows) {
  std::vector<const TimelineRow*> in_order = rows;
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const TimelineRow* a, const TimelineRow* b) { return a->start < b->start; });
  struct Life {
    Picoseconds begin = 0, end = 0;
  };
  std::map<StorageId, Life> lives;
  std::map<Picoseconds, std::int64_t> changes;  // change of bytes
  std::int64_t always = 0;
  const auto finish = [&](StorageId storage, const Life& life) {
    const std::int64_t bytes = schedule.storages[storage].bytes();
    changes[life.begin] += bytes;
    changes[life.end] -= bytes;
  };
  Footprints footprints(schedule, program);
  for (const TimelineRow* row : in_order) {
    const std::vector<Access>& accesses = schedule.operations[program.ops[row->op].op].accesses;
    if (accesses.empty()) continue;
    const auto views = footprints.views(footprints.of(row->op));
    for (std::size_t i = 0; i < accesses.size(); ++i) {
      const Storage& storage = schedule.storages[views[i].storage];
      const auto [life, is_new] = lives.try_emplace(views[i].storage, Life{row->start, row->end});
      if (is_new && !comes_and_goes(storage.kind)) always += storage.bytes();
      if (is_new || !comes_and_goes(storage.kind)) continue;
      const bool is_overwritten =
          accesses[i].mode == AccessMode::write && views[i].rows * views[i].cols == storage.elements;
      if (is_overwritten && row->start >= life->second.end) {
        finish(life->first, life->second);
        life->second = {row->start, row->end};
      }
      life->second.end = std::max(life->second.end, row->end);
    }
  }
  for (const auto& [storage, life] : lives)
    if (comes_and_goes(schedule.storages[storage].kind)) finish(storage, life);
  std::vector<LiveMemory> live;
  for (const auto& [at, by] : changes) {
    always += by;
    if (by != 0) live.push_back({at, always});
  }
  return live;
}

}  // namespace stretto
