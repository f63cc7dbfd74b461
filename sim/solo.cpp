#include "sim/solo.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace stretto::sim {
namespace {

// A call as a range of operations.
struct Range {
  std::uint32_t begin = 0, end = 0;
  bool holds(std::uint32_t op) const { return begin <= op && op < end; }
};

bool is_inside(const BoundProgram& program, Range call, const BoundWait& wait) {
  return wait.steps_ago == 0 && call.holds(wait.op) && program.ops[wait.op].lane == wait.lane;
}

// What depends on the block alone; `lanes` stays empty when it cannot be played.
SoloShape shape_of(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_local,
                   Range call) {
  SoloShape shape;
  shape.count = call.end - call.begin;
  shape.last_lane = program.ops[call.end - 1].lane;
  if (shape.count < 2) return shape;
  std::vector<SoloShape::OnLane> lanes;
  for (std::uint32_t i = call.begin; i < call.end; ++i) {
    const BoundOp& op = program.ops[i];
    const Work& work = schedule.operations[op.op].work;
    const bool is_alone = !is_communication(work) || (std::holds_alternative<Collective>(work) &&
                                                      is_local[static_cast<std::size_t>(communicator_of(work))]);
    if (!is_alone || op.joined) return shape;
    for (std::uint32_t w = op.wait_begin; w < op.wait_end && i > call.begin; ++w)
      if (!is_inside(program, call, program.waits[w])) return shape;
    const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const auto& l) { return l.lane == op.lane; });
    if (found != lanes.end()) {
      ++found->count;
    } else {
      if (i > call.begin && op.wait_begin == op.wait_end) return shape;
      lanes.push_back({op.lane, i - call.begin, 1});
    }
  }
  shape.lanes = std::move(lanes);
  return shape;
}

// Nothing that follows on another lane can start before the last operation of the call has ended.
bool is_waited_for(const BoundProgram& program, Range call, const SoloShape& shape) {
  const std::uint32_t last = program.ops[call.end - 1].position;
  return std::all_of(shape.lanes.begin(), shape.lanes.end(), [&](const SoloShape::OnLane& on) {
    if (on.lane == shape.last_lane) return true;
    const std::uint32_t next = program.ops[call.begin + on.first].position + on.count;
    if (next == program.lanes[on.lane].size()) return false;
    const BoundOp& op = program.ops[program.lanes[on.lane][next]];
    return std::any_of(program.waits.begin() + op.wait_begin, program.waits.begin() + op.wait_end,
                       [&](const BoundWait& wait) {
                         return wait.steps_ago == 0 && wait.lane == shape.last_lane && wait.position >= last &&
                                (wait.kind == EdgeKind::finish_start || wait.position > last);
                       });
  });
}

}  // namespace

void find_solo_calls(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_local,
                     FlatProgram& flat) {
  std::map<std::array<std::uint32_t, 3>, std::uint16_t> known;  // (block, first, count) → shape; 0: cannot be played
  const std::vector<Call>& order = schedule.program_of(program.coordinates).order;
  std::uint32_t begin = 0;
  for (const Call& call : order) {
    const Range range{begin, begin + call.count};
    begin = range.end;
    const auto [found, is_new] = known.try_emplace({call.block, call.first, call.count}, 0);
    if (is_new && call.count > 1 && flat.shapes.size() < std::numeric_limits<std::uint16_t>::max()) {
      SoloShape shape = shape_of(schedule, program, is_local, range);
      if (!shape.lanes.empty()) {
        flat.shapes.push_back(std::move(shape));
        found->second = static_cast<std::uint16_t>(flat.shapes.size());
      }
    }
    if (found->second == 0 || !is_waited_for(program, range, flat.shapes[found->second - 1u])) continue;
    const BoundOp& first = program.ops[range.begin];
    flat.ops[flat.lane_begin[first.lane] + first.position].shape = found->second;
  }
}

}  // namespace stretto::sim
