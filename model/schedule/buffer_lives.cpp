#include "model/schedule/buffer_lives.hpp"

#include <algorithm>
#include <cstddef>

#include "model/schedule/order.hpp"

namespace stretto {
namespace {

constexpr std::size_t kNoLife = ~std::size_t{0};

// Returns [tensor] whether the contents of a storage of the tensor come and go.
std::vector<bool> come_and_go(const Schedule& schedule) {
  std::vector<bool> result;
  for (const Tensor& tensor : schedule.tensors)
    result.push_back(std::any_of(tensor.places.begin(), tensor.places.end(), [&](const TensorPlace& place) {
      const BufferKind kind = schedule.storages[place.storage].kind;
      return kind == BufferKind::activation || kind == BufferKind::workspace;
    }));
  return result;
}

}  // namespace

std::vector<BufferLife> buffer_lives(const Schedule& schedule, const BoundProgram& program) {
  std::vector<BufferLife> lives;
  std::vector<std::size_t> open(schedule.storages.size(), kNoLife);  // [storage] index of its latest life
  const std::vector<bool> comes_and_goes = come_and_go(schedule);
  Coordinates at;
  for (std::uint32_t op = 0; op < program.ops.size(); ++op) {
    const BoundOp& bound = program.ops[op];
    const std::size_t before = lives.size();
    bool has_coordinates = false;
    for (const Access& access : schedule.operations[bound.op].accesses) {
      if (!comes_and_goes[access.view.tensor]) continue;
      if (!has_coordinates) at = coordinates_of(program, bound);
      has_coordinates = true;
      const StorageId id = storage_of(schedule, access.view, at);
      const Storage& storage = schedule.storages[id];
      if (storage.kind != BufferKind::activation && storage.kind != BufferKind::workspace) continue;
      const bool is_overwritten =
          access.mode == AccessMode::write && access.view.rows * access.view.cols == storage.elements;
      if (open[id] == kNoLife || (is_overwritten && lives[open[id]].last < op)) {
        open[id] = lives.size();
        lives.push_back({id, op, op});
      }
      lives[open[id]].last = op;
    }
    if (lives.size() - before < 2) continue;
    std::sort(lives.begin() + static_cast<std::ptrdiff_t>(before), lives.end(),
              [](const BufferLife& a, const BufferLife& b) { return a.storage < b.storage; });
    for (std::size_t life = before; life < lives.size(); ++life) open[lives[life].storage] = life;
  }
  return lives;
}

}  // namespace stretto
