#include "exec/serial/serial.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "exec/comm/local.hpp"
#include "model/schedule/partners.hpp"

namespace stretto::serial {
namespace {

constexpr unsigned char kPoison = 0xff;

std::uint32_t index_of(const BoundProgram& program, const BoundOp& op) {
  return static_cast<std::uint32_t>(&op - program.ops.data());
}

void copy_message(const host::Operand& in, const host::Operand& out) {
  std::memcpy(out.data, in.data, static_cast<std::size_t>(in.rows * in.cols * bytes_of(in.dtype)));
}

}  // namespace

SerialExecutor::SerialExecutor(const Schedule& schedule, const MemoryPlan& plan) : schedule_(schedule) {
  host::prepare_blas();
  for (std::int64_t r = 0; r < schedule.mesh.ranks(); ++r) {
    RankState rank;
    rank.program = bind(schedule, r);
    rank.memory = std::make_unique<host::RankMemory>(schedule, plan.roles[rank.program.role]);
    rank.operands = host::bind_operands(schedule, rank.program, *rank.memory);
    rank.lanes.resize(schedule.lanes.size());
    ranks_.push_back(std::move(rank));
  }
}

const BoundOp& SerialExecutor::op_at(const RankState& rank, LaneId lane, std::uint64_t number) const {
  const auto& ops = rank.program.lanes[lane];
  return rank.program.ops[ops[number % ops.size()]];
}

const BoundOp& SerialExecutor::head_op(const RankState& rank, LaneId lane) const {
  return op_at(rank, lane, rank.lanes[lane].finished);
}

std::uint64_t SerialExecutor::group_size(const RankState& rank, LaneId lane) const {
  const std::uint64_t first = rank.lanes[lane].finished;
  std::uint64_t size = 1;
  while ((first + size) % rank.program.lanes[lane].size() != 0 && op_at(rank, lane, first + size).joined) ++size;
  return size;
}

bool SerialExecutor::waits_are_met(const RankState& rank, std::uint64_t step, const BoundOp& op) const {
  for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
    const BoundWait& wait = rank.program.waits[w];
    if (wait.steps_ago > step) continue;
    const LaneState& other = rank.lanes[wait.lane];
    const std::uint64_t needed = (step - wait.steps_ago) * rank.program.lanes[wait.lane].size() + wait.position + 1;
    if ((wait.kind == EdgeKind::finish_start ? other.finished : other.started) < needed) return false;
  }
  return true;
}

bool SerialExecutor::can_start(const RankState& rank, LaneId lane, int steps) const {
  const LaneState& state = rank.lanes[lane];
  const std::size_t length = rank.program.lanes[lane].size();
  if (state.running() || length == 0 || state.finished == static_cast<std::uint64_t>(steps) * length) return false;
  for (std::uint64_t i = 0; i < group_size(rank, lane); ++i)
    if (!waits_are_met(rank, state.finished / length, op_at(rank, lane, state.finished + i))) return false;
  return true;
}

// Returns the members of the group that have arrived at this rank's collective: those that have finished as many of the
// communicator's collectives and are in one of them, on whatever lane.
std::vector<SerialExecutor::Head> SerialExecutor::present(const RankState& rank, LaneId lane) const {
  const std::uint32_t communicator = communicator_of(schedule_.operations[head_op(rank, lane).op].work);
  std::vector<Head> heads;
  for (const std::int64_t member : members_of(schedule_, schedule_.communicators[communicator], rank.program.rank)) {
    RankState& other = ranks_[static_cast<std::size_t>(member)];
    if (other.collectives[communicator] != rank.collectives[communicator]) continue;
    for (LaneId l = 0; l < other.lanes.size(); ++l) {
      if (!other.lanes[l].running()) continue;
      const auto* work = std::get_if<Collective>(&schedule_.operations[head_op(other, l).op].work);
      if (work && work->communicator == communicator) heads.push_back({&other, l});
    }
  }
  return heads;
}

bool SerialExecutor::can_finish(const RankState& rank, LaneId lane) const {
  const LaneState& state = rank.lanes[lane];
  if (!state.running()) return false;
  const Work& work = schedule_.operations[head_op(rank, lane).op].work;
  if (!is_communication(work)) return true;
  if (std::holds_alternative<PointToPoint>(work)) {
    const Message& message = messages_.at(state.messages.front());
    return message.in && message.out;
  }
  return static_cast<std::int64_t>(present(rank, lane).size()) == schedule_.communicators[communicator_of(work)].size;
}

void SerialExecutor::poison_outputs(RankState& rank, const BoundOp& op) {
  const auto operands = rank.operands.of(index_of(rank.program, op));
  for (const host::Operand& out : operands) {
    if (out.mode != AccessMode::write) continue;
    for (std::int64_t row = 0; row < out.rows; ++row) {
      auto* begin = static_cast<unsigned char*>(out.data) + row * out.ld * bytes_of(out.dtype);
      auto* end = begin + out.cols * bytes_of(out.dtype);
      // In-place operations read part of the memory that they write: that part must stay.
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

void SerialExecutor::compute(RankState& rank, const BoundOp& op) {
  const auto operands = rank.operands.of(index_of(rank.program, op));
  host::run_work(rank.program.works[op.op], operands);
  if (observer_) observer_(rank.program, op, operands);
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
    const auto operands = member.rank->operands.of(index_of(member.rank->program, op));
    buffers.push_back(local::buffers_of(collective, operands));
    dtype = operands.front().dtype;
  }
  for (int phase = 0; phase < local::phases(collective.kind); ++phase)
    for (std::size_t i = 0; i < members.size(); ++i)
      local::run_share(collective, dtype, static_cast<int>(i), buffers, phase);
}

void SerialExecutor::deliver(Message& message) {
  if (message.in->rows * message.in->cols != message.out->rows * message.out->cols)
    throw runtime_failure("a message is received in a buffer of another size");
  copy_message(*message.in, *message.out);
  message.delivered = true;
}

// Starts a message. Bytes may move as soon as both ends have started, or as late as when the first of them finishes;
// until then the receiver's buffer may hold anything.
void SerialExecutor::start_message(RankState& rank, const BoundOp& op, std::uint64_t coin) {
  const auto& work = std::get<PointToPoint>(schedule_.operations[op.op].work);
  const std::int64_t self = rank.program.rank, peer = peer_of(schedule_, work, self).rank;
  const std::uint64_t number = rank.messages[{work.communicator, peer, work.is_send}]++;
  const MessageKey key{work.communicator, work.is_send ? self : peer, work.is_send ? peer : self, number};
  rank.lanes[op.lane].messages.push_back(key);
  Message& message = messages_[key];
  (work.is_send ? message.in : message.out) = rank.operands.of(index_of(rank.program, op)).front();
  if (!work.is_send && coin % 2 == 0) poison_outputs(rank, op);
  if (message.in && message.out && coin / 2 % 2 == 0) deliver(message);
}

void SerialExecutor::start(RankState& rank, LaneId lane, std::uint64_t coin) {
  LaneState& state = rank.lanes[lane];
  const BoundOp& op = head_op(rank, lane);
  const Work& work = rank.program.works[op.op];
  const std::uint64_t group = group_size(rank, lane);
  if (std::holds_alternative<PointToPoint>(work)) {
    for (std::uint64_t i = 0; i < group; ++i) start_message(rank, op_at(rank, lane, state.finished + i), coin >> 2 * i);
    state.started += group;
    return;
  }
  ++state.started;
  state.when = coin % 2 == 0 ? When::at_finish : When::at_start;
  if (is_communication(work)) {
    const auto members = present(rank, lane);
    if (static_cast<std::int64_t>(members.size()) < schedule_.communicators[communicator_of(work)].size) return;
    // The last member to arrive decides for all, so that bytes move once.
    for (const Head& member : members) member.rank->lanes[member.lane].when = state.when;
    if (state.when == When::at_start) {
      apply_collective(members);
    } else {
      for (const Head& member : members) poison_outputs(*member.rank, head_op(*member.rank, member.lane));
    }
    return;
  }
  if (state.when == When::at_start)
    compute(rank, op);
  else
    poison_outputs(rank, op);
}

void SerialExecutor::finish(RankState& rank, LaneId lane) {
  LaneState& state = rank.lanes[lane];
  const BoundOp& op = head_op(rank, lane);
  const Work& work = rank.program.works[op.op];
  if (std::holds_alternative<PointToPoint>(work)) {
    const auto found = messages_.find(state.messages.front());
    state.messages.pop_front();
    if (!found->second.delivered) deliver(found->second);
    if (++found->second.finished_ends == 2) messages_.erase(found);
  } else if (is_communication(work)) {
    // Members complete together.
    const auto members = present(rank, lane);
    if (state.when == When::at_finish) apply_collective(members);
    for (const Head& member : members) {
      ++member.rank->lanes[member.lane].finished;
      ++member.rank->collectives[communicator_of(work)];
    }
    return;
  } else if (state.when == When::at_finish) {
    compute(rank, op);
  }
  ++state.finished;
}

void SerialExecutor::run(int steps, std::uint64_t seed) {
  for (RankState& rank : ranks_) {
    for (LaneState& lane : rank.lanes) lane = {};
    rank.collectives.assign(schedule_.communicators.size(), 0);
    rank.messages.clear();
  }
  messages_.clear();
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
      start(*move.rank, move.lane, random());
  }
}

}  // namespace stretto::serial
