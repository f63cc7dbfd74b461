#include "exec/serial/serial.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "exec/comm/local.hpp"

namespace stretto::serial {
namespace {

constexpr unsigned char kPoison = 0xff;

}  // namespace

SerialExecutor::SerialExecutor(const Schedule& schedule, const MemoryPlan& plan) : schedule_(schedule) {
  host::use_one_blas_thread();
  for (std::int64_t r = 0; r < schedule.mesh.ranks(); ++r) {
    RankState rank;
    rank.program = bind(schedule, r);
    rank.memory = std::make_unique<host::RankMemory>(schedule, plan);
    rank.operands = host::bind_operands(schedule, rank.program, *rank.memory);
    rank.lanes.resize(schedule.lanes.size());
    ranks_.push_back(std::move(rank));
  }
}

const BoundOp& SerialExecutor::head_op(const RankState& rank, LaneId lane) const {
  const auto& ops = rank.program.lanes[lane];
  return rank.program.ops[ops[rank.lanes[lane].finished % ops.size()]];
}

bool SerialExecutor::can_start(const RankState& rank, LaneId lane, int steps) const {
  const LaneState& state = rank.lanes[lane];
  const std::size_t length = rank.program.lanes[lane].size();
  if (state.running || length == 0 || state.finished == static_cast<std::uint64_t>(steps) * length) return false;
  const std::uint64_t step = state.finished / length;
  const BoundOp& op = head_op(rank, lane);
  for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
    const BoundWait& wait = rank.program.waits[w];
    if (wait.steps_ago > step) continue;
    const LaneState& other = rank.lanes[wait.lane];
    const std::uint64_t needed = (step - wait.steps_ago) * rank.program.lanes[wait.lane].size() + wait.position + 1;
    if ((wait.kind == EdgeKind::finish_start ? other.finished : other.started) < needed) return false;
  }
  return true;
}

// The same operation on all members: same communicator, so the same place in each member's lane.
std::vector<SerialExecutor::Head> SerialExecutor::peers(const RankState& rank, LaneId lane) const {
  const auto& collective = std::get<Collective>(schedule_.operations[head_op(rank, lane).op].work);
  std::vector<Head> heads;
  for (const std::int64_t member :
       schedule_.mesh.members(rank.program.rank, schedule_.communicators[collective.communicator].axes))
    heads.push_back({&ranks_[static_cast<std::size_t>(member)], lane});
  return heads;
}

bool SerialExecutor::can_finish(const RankState& rank, LaneId lane) const {
  if (!rank.lanes[lane].running) return false;
  if (!is_communication(schedule_.operations[head_op(rank, lane).op].work)) return true;
  for (const Head& peer : peers(rank, lane)) {
    // A member that has finished this very operation is ahead; otherwise it must have arrived, and not be behind: on a
    // lane with several communicators its group may be another one there.
    const LaneState& other = peer.rank->lanes[lane];
    const std::uint64_t mine = rank.lanes[lane].finished;
    if (other.finished < mine || (other.finished == mine && !other.running)) return false;
  }
  return true;
}

void SerialExecutor::poison_outputs(RankState& rank, LaneId lane) {
  const auto op = static_cast<std::uint32_t>(&head_op(rank, lane) - rank.program.ops.data());
  const auto operands = rank.operands.of(op);
  for (const host::Operand& out : operands) {
    if (out.mode != AccessMode::write) continue;
    for (std::int64_t row = 0; row < out.rows; ++row) {
      auto* begin = static_cast<unsigned char*>(out.data) + row * out.ld * bytes_of(out.dtype);
      auto* end = begin + out.cols * bytes_of(out.dtype);
      // In place operations read part of what they write: that part stays.
      const host::Operand* kept = nullptr;
      for (const host::Operand& in : operands) {
        auto* data = static_cast<unsigned char*>(in.data);
        if (in.mode == AccessMode::read && data < end && data + in.rows * in.ld * bytes_of(in.dtype) > begin)
          kept = &in;
      }
      if (kept == nullptr) {
        std::memset(begin, kPoison, static_cast<std::size_t>(end - begin));
        continue;
      }
      auto* keep_begin = std::max(begin, static_cast<unsigned char*>(kept->data));
      auto* keep_end =
          std::min(end, static_cast<unsigned char*>(kept->data) + kept->rows * kept->ld * bytes_of(kept->dtype));
      std::memset(begin, kPoison, static_cast<std::size_t>(keep_begin - begin));
      std::memset(keep_end, kPoison, static_cast<std::size_t>(end - keep_end));
    }
  }
}

void SerialExecutor::apply_collective(const std::vector<Head>& members) {
  const BoundOp& first = head_op(*members.front().rank, members.front().lane);
  const auto& collective = std::get<Collective>(schedule_.operations[first.op].work);
  std::vector<local::Buffers> buffers;
  Dtype dtype = Dtype::f32;
  for (const Head& member : members) {
    const BoundOp& op = head_op(*member.rank, member.lane);
    if (op.op != first.op)
      throw runtime_failure("members of " + schedule_.communicators[collective.communicator].name +
                            " meet in different operations: " + label(schedule_, first) + " and " +
                            label(schedule_, op));
    const auto operands = member.rank->operands.of(static_cast<std::uint32_t>(&op - member.rank->program.ops.data()));
    buffers.push_back({operands.front().data, operands.back().data});
    dtype = operands.front().dtype;
  }
  for (int phase = 0; phase < local::phases(collective.kind); ++phase)
    for (std::size_t i = 0; i < members.size(); ++i)
      local::run_share(collective.kind, dtype, collective.elements, static_cast<int>(i), buffers, phase);
}

void SerialExecutor::start(RankState& rank, LaneId lane, bool late) {
  LaneState& state = rank.lanes[lane];
  state.running = true;
  ++state.started;
  state.when = late ? When::at_finish : When::at_start;
  const BoundOp& op = head_op(rank, lane);
  const Work& work = schedule_.operations[op.op].work;
  if (is_communication(work)) {
    const auto members = peers(rank, lane);
    for (const Head& member : members)
      if (!member.rank->lanes[lane].running || member.rank->lanes[lane].finished != state.finished) return;
    // The last to arrive decides for all, so that bytes move once.
    for (const Head& member : members) member.rank->lanes[lane].when = state.when;
    if (state.when == When::at_start) {
      apply_collective(members);
    } else {
      for (const Head& member : members) poison_outputs(*member.rank, lane);
    }
    return;
  }
  if (state.when == When::at_start)
    host::run_work(work, rank.program.coordinates,
                   rank.operands.of(static_cast<std::uint32_t>(&op - rank.program.ops.data())));
  else
    poison_outputs(rank, lane);
}

void SerialExecutor::finish(RankState& rank, LaneId lane) {
  LaneState& state = rank.lanes[lane];
  const BoundOp& op = head_op(rank, lane);
  const Work& work = schedule_.operations[op.op].work;
  if (is_communication(work)) {
    // Members complete together.
    const auto members = peers(rank, lane);
    if (state.when == When::at_finish) apply_collective(members);
    for (const Head& member : members) {
      member.rank->lanes[lane].running = false;
      ++member.rank->lanes[lane].finished;
    }
    return;
  }
  if (state.when == When::at_finish)
    host::run_work(work, rank.program.coordinates,
                   rank.operands.of(static_cast<std::uint32_t>(&op - rank.program.ops.data())));
  state.running = false;
  ++state.finished;
}

void SerialExecutor::run(int steps, std::uint64_t seed) {
  for (RankState& rank : ranks_)
    for (LaneState& lane : rank.lanes) lane = {};
  std::mt19937_64 random(seed);
  struct Move {
    RankState* rank;
    LaneId lane;
    bool finishes;
  };
  std::vector<Move> moves;
  while (true) {
    moves.clear();
    bool done = true;
    for (RankState& rank : ranks_)
      for (LaneId lane = 0; lane < rank.lanes.size(); ++lane) {
        done = done && rank.lanes[lane].finished == static_cast<std::uint64_t>(steps) * rank.program.lanes[lane].size();
        if (can_start(rank, lane, steps)) moves.push_back({&rank, lane, false});
        if (can_finish(rank, lane)) moves.push_back({&rank, lane, true});
      }
    if (done) return;
    if (moves.empty()) throw runtime_failure("deadlock: no operation of " + schedule_.name + " can start or finish");
    const Move move = moves[random() % moves.size()];
    if (move.finishes)
      finish(*move.rank, move.lane);
    else
      start(*move.rank, move.lane, random() % 2 == 0);
  }
}

}  // namespace stretto::serial
