#include "model/schedule/buffer_lives.hpp"

#include <algorithm>
#include <tuple>

#include "model/schedule/footprint.hpp"

namespace stretto {

std::vector<BufferLife> buffer_lives(const Schedule& schedule, const BoundProgram& program) {
  std::vector<BufferLife> lives;
  std::vector<BufferLife> open(schedule.storages.size());
  std::vector<bool> is_open(schedule.storages.size(), false);
  Footprints footprints(schedule, program);
  for (std::uint32_t op = 0; op < program.ops.size(); ++op) {
    const std::vector<Access>& accesses = schedule.operations[program.ops[op].op].accesses;
    if (accesses.empty()) continue;
    const auto views = footprints.views(footprints.of(op));
    for (std::size_t a = 0; a < accesses.size(); ++a) {
      const StorageId id = views[a].storage;
      const Storage& storage = schedule.storages[id];
      if (storage.kind != BufferKind::activation && storage.kind != BufferKind::workspace) continue;
      BufferLife& life = open[id];
      const bool is_overwritten =
          accesses[a].mode == AccessMode::write && views[a].rows * views[a].cols == storage.elements;
      if (is_open[id] && is_overwritten && life.last < op) {
        lives.push_back(life);
        is_open[id] = false;
      }
      if (!is_open[id]) life = {id, op, op};
      is_open[id] = true;
      life.last = op;
    }
  }
  for (StorageId id = 0; id < open.size(); ++id)
    if (is_open[id]) lives.push_back(open[id]);
  std::sort(lives.begin(), lives.end(), [](const BufferLife& a, const BufferLife& b) {
    return std::tie(a.first, a.storage) < std::tie(b.first, b.storage);
  });
  return lives;
}

}  // namespace stretto
