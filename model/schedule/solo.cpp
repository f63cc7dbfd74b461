#include "model/schedule/solo.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace stretto {
namespace {

// Whether the wait, of operation `op` of a call that begins at `begin`, is for an earlier operation of the call.
bool is_inside(const BoundWait& wait, std::uint32_t begin, std::uint32_t op) {
  return wait.steps_ago == 0 && begin <= wait.op && wait.op < op;
}

// Waits of a block are the same in all calls, those that hardware queues add depend on what was issued before: a call
// is like `like`, a solo call of the same operations, when each waits for the same ones as there.
bool has_equal_waits(const BoundProgram& program, std::uint32_t begin, std::uint32_t like, std::uint32_t count) {
  for (std::uint32_t i = 1; i < count; ++i) {
    const BoundOp &mine = program.ops[begin + i], &other = program.ops[like + i];
    const auto equal = [&](const BoundWait& a, const BoundWait& b) {
      return a.kind == b.kind && a.lane == b.lane && a.steps_ago == b.steps_ago && a.op - begin == b.op - like;
    };
    if (!std::equal(program.waits.begin() + mine.wait_begin, program.waits.begin() + mine.wait_end,
                    program.waits.begin() + other.wait_begin, program.waits.begin() + other.wait_end, equal))
      return false;
  }
  return true;
}

// Its `lanes` are empty when it is not a solo call.
SoloShape shape_of(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_local,
                   std::uint32_t begin, std::uint32_t end) {
  SoloShape shape;
  shape.count = end - begin;
  shape.last_lane = program.ops[end - 1].lane;
  std::vector<SoloShape::OnLane> lanes;
  for (std::uint32_t i = begin; i < end; ++i) {
    const BoundOp& op = program.ops[i];
    const Work& work = schedule.operations[op.op].work;
    const bool is_alone = !is_communication(work) || (std::holds_alternative<Collective>(work) &&
                                                      is_local[static_cast<std::size_t>(communicator_of(work))]);
    if (!is_alone || op.joined) return shape;
    for (std::uint32_t w = op.wait_begin; w < op.wait_end && i > begin; ++w)
      if (!is_inside(program.waits[w], begin, i)) return shape;
    const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const auto& l) { return l.lane == op.lane; });
    if (found != lanes.end()) {
      ++found->count;
    } else {
      if (i > begin && op.wait_begin == op.wait_end) return shape;
      lanes.push_back({op.lane, i - begin, 1});
    }
  }
  shape.lanes = std::move(lanes);
  return shape;
}

std::size_t index_of(const SoloShape& shape, LaneId lane) {
  std::size_t index = 0;
  while (shape.lanes[index].lane != lane) ++index;
  return index;
}

}  // namespace

SoloCalls find_solo_calls(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_local) {
  SoloCalls calls;
  calls.at.resize(program.ops.size());
  struct Known {
    std::uint16_t shape = 0;  // + 1
    std::uint32_t begin = 0;  // of the call in which it was found
  };
  std::map<std::array<std::uint32_t, 3>, Known> known;  // (block, first, count), of solo calls only
  std::uint32_t begin = 0, end = 0;
  for (const Call& call : schedule.program_of(program.coordinates).order) {
    begin = end;
    end += call.count;
    if (call.count < 2) continue;
    const std::array<std::uint32_t, 3> key = {call.block, call.first, call.count};
    if (const auto found = known.find(key); found != known.end()) {
      if (has_equal_waits(program, begin, found->second.begin, call.count)) calls.at[begin] = found->second.shape;
      continue;
    }
    SoloShape shape = shape_of(schedule, program, is_local, begin, end);
    if (shape.lanes.empty() || calls.shapes.size() == std::numeric_limits<std::uint16_t>::max()) continue;
    calls.shapes.push_back(std::move(shape));
    calls.at[begin] = static_cast<std::uint16_t>(calls.shapes.size());
    known.emplace(key, Known{calls.at[begin], begin});
  }
  return calls;
}

bool is_waited_for(const BoundProgram& program, std::uint32_t op, const SoloShape& shape) {
  const std::uint32_t last = program.ops[op + shape.count - 1].position;
  return std::all_of(shape.lanes.begin(), shape.lanes.end(), [&](const SoloShape::OnLane& on) {
    if (on.lane == shape.last_lane) return true;
    const std::uint32_t next = program.ops[op + on.first].position + on.count;
    if (next == program.lanes[on.lane].size()) return false;
    const BoundOp& behind = program.ops[program.lanes[on.lane][next]];
    return std::any_of(program.waits.begin() + behind.wait_begin, program.waits.begin() + behind.wait_end,
                       [&](const BoundWait& wait) {
                         return wait.steps_ago == 0 && wait.lane == shape.last_lane && wait.position >= last &&
                                (wait.kind == EdgeKind::finish_start || wait.position > last);
                       });
  });
}

SoloClocks clocks_inside(const BoundProgram& program, std::uint32_t op, const SoloShape& shape) {
  const std::size_t lanes = shape.lanes.size();
  SoloClocks clocks;
  clocks.row.assign(shape.count, 0);
  clocks.finished.assign(lanes, 0);
  std::vector<std::uint32_t> in_lane(shape.count);                  // position among the operations of its lane
  std::vector<std::uint32_t> last_row(lanes, 0), passed(lanes, 0);  // of each lane
  for (std::uint32_t i = 0; i < shape.count; ++i) {
    const BoundOp& bound = program.ops[op + i];
    const std::size_t own = index_of(shape, bound.lane);
    in_lane[i] = passed[own]++;
    std::uint32_t& row = clocks.row[i] = last_row[own];
    std::vector<std::uint32_t> knows(clocks.finished.begin() + static_cast<std::ptrdiff_t>(row * lanes),
                                     clocks.finished.begin() + static_cast<std::ptrdiff_t>((row + 1) * lanes));
    bool is_new = own != 0 && in_lane[i] == 0;
    const auto learn = [&](std::size_t lane, std::uint32_t finished) {
      if (lane == own || knows[lane] >= finished) return;
      knows[lane] = finished;
      is_new = true;
    };
    for (std::uint32_t w = bound.wait_begin; w < bound.wait_end && i > 0; ++w) {
      const std::uint32_t on = program.waits[w].op - op;
      for (std::size_t l = 0; l < lanes; ++l) learn(l, clocks.finished[clocks.row[on] * lanes + l]);
      learn(index_of(shape, program.ops[op + on].lane),
            in_lane[on] + (program.waits[w].kind == EdgeKind::finish_start ? 1 : 0));
    }
    if (is_new) {
      row = static_cast<std::uint32_t>(clocks.finished.size() / lanes);
      clocks.finished.insert(clocks.finished.end(), knows.begin(), knows.end());
    }
    last_row[own] = row;
  }
  return clocks;
}

}  // namespace stretto
