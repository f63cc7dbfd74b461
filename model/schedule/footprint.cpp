#include "model/schedule/footprint.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace stretto {
namespace {

using Key = std::array<std::int64_t, 3 + kCallCoords.size()>;

// Finds tensors that no operation writes and whose instances all lie in one input storage. A read of any instance is
// never a conflict and never too early, and input storages share their bytes with nobody, so one instance can stand for
// all.
std::vector<bool> find_only_read(const Schedule& schedule) {
  std::vector<bool> is_input;  // [storage]: an input that is not written
  for (const Storage& storage : schedule.storages) is_input.push_back(storage.kind == BufferKind::input);
  for (const Operation& operation : schedule.operations)
    for (const Access& access : operation.accesses)
      if (access.mode != AccessMode::read && access.view.tensor < schedule.tensors.size())
        for (const TensorPlace& place : schedule.tensors[access.view.tensor].places)
          if (place.storage < is_input.size()) is_input[place.storage] = false;
  std::vector<bool> result;
  for (const Tensor& tensor : schedule.tensors)
    result.push_back(!tensor.places.empty() &&
                     std::all_of(tensor.places.begin(), tensor.places.end(), [&](const TensorPlace& place) {
                       return place.storage == tensor.places.front().storage && place.storage < is_input.size() &&
                              is_input[place.storage];
                     }));
  return result;
}

// The coordinates of its calls that the views of a block name.
struct Named {
  struct ViewRef {
    std::uint32_t op = 0;  // operation of the block
    std::size_t access = 0;
  };
  std::array<bool, kCallCoords.size()> coordinates{};  // without views of tensors that are only read
  std::vector<ViewRef> only_read;                      // the views of such tensors that name a coordinate, in order
};

Named named_by(const Schedule& schedule, const BoundProgram& program, const Block& block,
               const std::vector<bool>& is_only_read) {
  Named named;
  for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
    if (block.ops[i] >= schedule.operations.size()) continue;  // the operation belongs to a block that nobody calls
    const std::vector<Access>& accesses = schedule.operations[block.ops[i]].accesses;
    for (std::size_t a = 0; a < accesses.size(); ++a) {
      const View& view = accesses[a].view;
      std::array<bool, kCallCoords.size()> names{};
      for (std::size_t c = 0; c < kCallCoords.size(); ++c)
        names[c] = view.layer.depends_on(kCallCoords[c]) || view.slot.depends_on(kCallCoords[c]) ||
                   view.offset.depends_on(kCallCoords[c]);
      // A tensor whose place depends on the rank is checked instance by instance, on all ranks.
      const bool moves = std::any_of(
          program.represents.begin(), program.represents.end(),
          [&](const BoundProgram::ClassAxis& of) { return schedule.mesh.depends_on(view.offset, of.axis); });
      if (!moves && view.tensor < is_only_read.size() && is_only_read[view.tensor]) {
        if (std::find(names.begin(), names.end(), true) != names.end()) named.only_read.push_back({i, a});
        continue;
      }
      for (std::size_t c = 0; c < kCallCoords.size(); ++c) named.coordinates[c] = named.coordinates[c] || names[c];
    }
  }
  return named;
}

// Does what resolve() does, for coordinates that are known already. Returns false where that throws.
bool resolve_at(const Schedule& schedule, const Coordinates& at, const View& view, BoundView& bound) {
  if (view.tensor >= schedule.tensors.size()) return false;
  const Tensor& tensor = schedule.tensors[view.tensor];
  const std::int64_t layer = view.layer.eval(at), slot = view.slot.eval(at), offset = view.offset.eval(at);
  if (layer < 0 || layer >= tensor.layers || slot < 0 || slot >= tensor.slots || offset < 0 || view.rows < 1 ||
      view.cols < 1 || view.ld < view.cols || offset + (view.rows - 1) * view.ld + view.cols > tensor.elements())
    return false;
  const TensorPlace& place = tensor.places[static_cast<std::size_t>(layer * tensor.slots + slot)];
  bound = {place.storage, place.offset + offset, view.rows, view.cols, view.ld, layer};
  return true;
}

}  // namespace

Footprints::Footprints(const Schedule& schedule, const BoundProgram& program)
    : Footprints(schedule, program, find_only_read(schedule)) {}

Footprints::Footprints(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_only_read)
    : schedule_(schedule), program_(program) {
  std::vector<std::optional<Named>> named_of(schedule.blocks.size());  // those that are called
  const std::vector<Call>& order = schedule.programs[program.role].order;
  std::map<Key, std::uint32_t> known;  // → footprint of the call's first operation
  of_.resize(program.ops.size());
  view_begin_.push_back(0);
  std::uint32_t next = 0;  // next operation
  for (const Call& call : order) {
    if (!named_of[call.block])
      named_of[call.block] = named_by(schedule, program, schedule.blocks[call.block], is_only_read);
    const Named& named = *named_of[call.block];
    Key key{call.block, call.first, call.count};
    const std::array<std::int64_t, kCallCoords.size()> at = {call.micro_batch, call.layer, call.chunk, call.slot,
                                                             call.buffer};
    for (std::size_t c = 0; c < kCallCoords.size(); ++c)
      if (named.coordinates[c]) key[3 + c] = at[c];
    const auto [found, is_new] = known.try_emplace(key, count());
    // The instance that stands for others exists, but this call's own instance must be checked too.
    if (!is_new)
      for (const Named::ViewRef& view : named.only_read)
        if (view.op >= call.first && view.op < call.first + call.count)
          resolve(schedule, program, program.ops[next + view.op - call.first], view.access);
    for (std::uint32_t i = 0; i < call.count; ++i, ++next) {
      of_[next] = found->second + i;
      if (!is_new) continue;
      first_op_.push_back(next);
      const auto accesses = schedule.operations[program.ops[next].op].accesses.size();
      view_begin_.push_back(view_begin_.back() + static_cast<std::uint32_t>(accesses));
    }
  }
  views_.resize(view_begin_.back());
  is_resolved_.resize(count());
}

void Footprints::resolve_views(std::uint32_t footprint) {
  const std::uint32_t begin = view_begin_[footprint], end = view_begin_[footprint + 1];
  const BoundOp& op = program_.ops[first_op_[footprint]];
  const Coordinates at = coordinates_of(program_, op);
  for (std::uint32_t view = begin; view < end; ++view)
    if (!resolve_at(schedule_, at, schedule_.operations[op.op].accesses[view - begin].view, views_[view]))
      views_[view] = resolve(schedule_, program_, op, view - begin);  // which says what is wrong with it
  is_resolved_[footprint] = true;
}

std::vector<Footprints> footprints_of(const Schedule& schedule, std::span<const BoundProgram> programs) {
  const std::vector<bool> is_only_read = find_only_read(schedule);
  std::vector<Footprints> result;
  for (const BoundProgram& program : programs) result.push_back(Footprints(schedule, program, is_only_read));
  return result;
}

}  // namespace stretto
