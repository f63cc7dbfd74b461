#include "model/schedule/footprint.hpp"

#include <array>
#include <map>

namespace stretto {
namespace {

constexpr std::array<Coord, 5> kOfCall = {Coord::layer, Coord::micro_batch, Coord::chunk, Coord::slot, Coord::buffer};

using Key = std::array<std::int64_t, 3 + kOfCall.size()>;

// Which coordinates of its calls the views of a block name.
std::array<bool, kOfCall.size()> named_by(const Schedule& schedule, const Block& block) {
  std::array<bool, kOfCall.size()> named{};
  for (const OpId op : block.ops) {
    if (op >= schedule.operations.size()) continue;  // of a block that nobody calls
    for (const Access& access : schedule.operations[op].accesses)
      for (std::size_t c = 0; c < kOfCall.size(); ++c)
        named[c] = named[c] || access.view.layer.depends_on(kOfCall[c]) || access.view.slot.depends_on(kOfCall[c]) ||
                   access.view.offset.depends_on(kOfCall[c]);
  }
  return named;
}

}  // namespace

Footprints::Footprints(const Schedule& schedule, const BoundProgram& program) : schedule_(schedule), program_(program) {
  std::vector<std::array<bool, kOfCall.size()>> named;  // [block]
  for (const Block& block : schedule.blocks) named.push_back(named_by(schedule, block));
  const std::vector<Call>& order = schedule.program_of(program.coordinates).order;
  std::map<Key, std::uint32_t> known;  // → footprint of its first operation
  of_.resize(program.ops.size());
  view_begin_.push_back(0);
  std::uint32_t next = 0;  // op
  for (const Call& call : order) {
    Key key{call.block, call.first, call.count};
    const std::array<std::int64_t, kOfCall.size()> at = {call.layer, call.micro_batch, call.chunk, call.slot,
                                                         call.buffer};
    for (std::size_t c = 0; c < kOfCall.size(); ++c)
      if (named[call.block][c]) key[3 + c] = at[c];
    const auto [found, is_new] = known.try_emplace(key, count());
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

std::span<const BoundView> Footprints::views(std::uint32_t footprint) {
  const std::uint32_t begin = view_begin_[footprint], end = view_begin_[footprint + 1];
  if (!is_resolved_[footprint]) {
    for (std::uint32_t view = begin; view < end; ++view)
      views_[view] = resolve(schedule_, program_, program_.ops[first_op_[footprint]], view - begin);
    is_resolved_[footprint] = true;
  }
  return std::span(views_).subspan(begin, end - begin);
}

std::vector<Footprints> footprints_of(const Schedule& schedule, std::span<const BoundProgram> programs) {
  std::vector<Footprints> result;
  for (const BoundProgram& program : programs) result.emplace_back(schedule, program);
  return result;
}

}  // namespace stretto
