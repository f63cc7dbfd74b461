#include "model/schedule/bind.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

// Packs the coordinates of an instance into one number; layers, micro-batches and chunks stay far below 2^20.
std::uint64_t instance_key(std::int64_t layer, std::int64_t micro_batch, std::int64_t chunk) {
  return (static_cast<std::uint64_t>(layer) << 40) | (static_cast<std::uint64_t>(micro_batch) << 16) |
         static_cast<std::uint64_t>(chunk);
}

bool holds(const Call& call, std::uint32_t op) { return op >= call.first && op - call.first < call.count; }

struct InstanceIndex {
  // Finds bound operations by coordinates. Only operations that an edge between calls names are indexed: a handful out
  // of millions.
  std::vector<bool> wanted;                                          // [OpId]
  std::vector<std::unordered_map<std::uint64_t, std::uint32_t>> at;  // [OpId]: coordinates → index in ops
};

// Returns the operations among [first, end) of a block that no other of them follows: when these have finished, all
// have. Example: operations 0 and 2 are on the lane of computation, 1 is on a lane of communication and waits for 0.
//   2 and 1 are ends: they are the last ones of their lanes, and nothing in the block waits for them.
//   0 is none: 2 follows it on its lane, so 0 has finished when 2 has. (That 1 waits for it would do, too.)
// So the next call of the sequence gets two waits instead of three. If 2 waited for 1, it would get one, for 2.
std::vector<std::uint32_t> ends_of(const Schedule& schedule, const Block& block, std::uint32_t first,
                                   std::uint32_t end) {
  std::vector<bool> has_next(end);
  for (const BlockWait& wait : block.waits)
    if (wait.kind == EdgeKind::finish_start && wait.op >= first && wait.op < end && wait.on < end)
      has_next[wait.on] = true;
  std::vector<bool> has_later(schedule.lanes.size());  // [lane]
  std::vector<std::uint32_t> ends;
  for (std::uint32_t i = end; i-- > first;) {
    const LaneId lane = schedule.operations[block.ops[i]].lane;
    if (!has_next[i] && !has_later[lane]) ends.push_back(i);
    has_later[lane] = true;
  }
  return ends;
}

// Derives the waits of a sequence's calls: each call waits for the end of the previous call, or of all concurrent
// previous calls.
class Sequences {
 public:
  explicit Sequences(const Schedule& schedule) : schedule_(schedule) {}

  // Takes the next call, whose first bound operation is `begin`, and returns the bound operations that the call waits
  // for, with a flag that says whether they belong to the previous step. Consecutive parts of one cut call count as one
  // call. Example: calls A, B, C of one sequence, where B is concurrent with A, and all end on lanes 0 and 1. A and B
  // are one turn, so both wait for the turn before. C waits for B's two ends only: B comes after A on each lane, so A's
  // have finished when B's have. In the next step A waits for C's ends of the step before.
  struct Ended {
    std::span<const std::uint32_t> ops;
    bool is_of_step_before = false;
  };
  Ended pass(const Call& call, std::uint32_t begin) {
    if (call.sequence == 0 || call.count == 0) return {};
    Sequence& s = sequences_[call.sequence];
    const bool goes_on = !s.turn.empty() && continues(*s.turn.back().call, call);
    if (!s.turn.empty() && !goes_on && !call.concurrent && !call.joined) end_turn(s);
    s.turn.push_back({&call, begin});
    return goes_on || call.joined ? Ended{} : Ended{s.ended, s.is_of_step_before};
  }
  // Begins the program again, one step later.
  void next_step() {
    for (auto& [number, s] : sequences_) {
      end_turn(s);
      s.is_of_step_before = true;
    }
  }

 private:
  struct Part {
    const Call* call = nullptr;
    std::uint32_t begin = 0;  // first bound operation
  };
  struct Sequence {
    std::vector<Part> turn;
    std::vector<std::uint32_t> ended;  // bound operations that the previous turn ends with, one for each lane
    bool is_of_step_before = false;    // the previous turn belongs to the previous step
  };

  void end_turn(Sequence& s) {
    s.ended.clear();
    s.is_of_step_before = false;
    lanes_.clear();
    for (std::size_t begin = 0, end = 0; begin < s.turn.size(); begin = end) {
      for (end = begin + 1; end < s.turn.size() && continues(*s.turn[end - 1].call, *s.turn[end].call);) ++end;
      const Call& last = *s.turn[end - 1].call;
      const std::uint32_t first = s.turn[begin].call->first, after = last.first + last.count;
      const Block& block = schedule_.blocks[last.block];
      const auto [ends, is_new] = ends_.try_emplace({last.block, first, after});
      if (is_new) ends->second = ends_of(schedule_, block, first, after);
      for (const std::uint32_t op : ends->second) {
        std::size_t part = end - 1;
        while (s.turn[part].call->first > op) --part;
        add_end(s, schedule_.operations[block.ops[op]].lane, s.turn[part].begin + op - s.turn[part].call->first);
      }
    }
    s.turn.clear();
  }
  void add_end(Sequence& s, LaneId lane, std::uint32_t op) {
    const auto same = static_cast<std::size_t>(std::find(lanes_.begin(), lanes_.end(), lane) - lanes_.begin());
    if (same < lanes_.size()) {
      s.ended[same] = op;  // keeps the later operation of the lane
    } else {
      lanes_.push_back(lane);
      s.ended.push_back(op);
    }
  }

  const Schedule& schedule_;
  std::map<std::uint8_t, Sequence> sequences_;
  std::map<std::tuple<BlockId, std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> ends_;  // block, [first, end)
  // lanes of the turn's ends
  std::vector<LaneId> lanes_;
};

// The edges that hardware queues add: operations of one queue start in issue order.
class QueueOrder {
 public:
  QueueOrder(const Schedule& schedule, const BoundProgram& bound) : bound_(bound) {
    const bool shares =
        std::any_of(schedule.lanes.begin(), schedule.lanes.end(), [](const Lane& l) { return l.queue >= 0; });
    if (!shares) return;
    before_.assign(bound.ops.size(), kNobody);
    struct Queue {
      std::uint32_t first = kNobody, last = kNobody;
    };
    std::map<int, Queue> queues;
    std::vector<Queue*> of_lane;
    for (const Lane& lane : schedule.lanes) of_lane.push_back(lane.queue < 0 ? nullptr : &queues[lane.queue]);
    for (std::uint32_t i = 0; i < bound.ops.size(); ++i) {
      Queue* queue = of_lane[bound.ops[i].lane];
      if (queue == nullptr) continue;
      if (queue->first == kNobody) queue->first = i;
      before_[i] = std::exchange(queue->last, i);
    }
    // The predecessor of a step's first operation is the last operation of the previous step.
    for (const auto& [number, queue] : queues)
      if (queue.first != kNobody) before_[queue.first] = queue.last;
  }

  std::optional<BoundWait> wait_of(std::uint32_t op) const {
    if (before_.empty() || before_[op] == kNobody) return std::nullopt;
    const BoundOp& other = bound_.ops[before_[op]];
    if (other.lane == bound_.ops[op].lane) return std::nullopt;  // the lane orders the two already
    const std::uint8_t steps_ago = before_[op] > op ? 1 : 0;
    return BoundWait{EdgeKind::start_start, other.lane, steps_ago, other.position, before_[op]};
  }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  const BoundProgram& bound_;
  std::vector<std::uint32_t> before_;  // [op]; empty without queues
};

}  // namespace

BoundProgram bind(const Schedule& schedule, std::int64_t rank) {
  BoundProgram bound;
  bound.rank = rank;
  bound.coordinates = schedule.mesh.coordinates_of(rank);
  bound.lanes.resize(schedule.lanes.size());
  bound.role = schedule.role_of(bound.coordinates);
  const Program& program = schedule.programs[bound.role];
  for (const Operation& operation : schedule.operations)
    bound.works.push_back(evaluate(operation.work, bound.coordinates));

  InstanceIndex index;
  index.wanted.resize(schedule.operations.size());
  index.at.resize(schedule.operations.size());
  std::size_t count = 0, waits = 0;
  for (const Call& call : program.order) {
    count += call.count;
    waits += call.waits.size();
    if (call.block < schedule.blocks.size()) waits += schedule.blocks[call.block].waits.size();
    for (const Edge& edge : call.waits) {
      if (edge.on.op >= schedule.operations.size())
        throw input_error("schedule: an edge names operation " + std::to_string(edge.on.op) + ", which does not exist");
      index.wanted[edge.on.op] = true;
    }
    // A rewrite may have cut a block between two operations, and one waits for the other. The wait then leads to
    // another call.
    if (call.block < schedule.blocks.size())
      for (const BlockWait& wait : schedule.blocks[call.block].waits)
        if (call.count < schedule.blocks[call.block].ops.size() && holds(call, wait.op) && !holds(call, wait.on) &&
            wait.on < schedule.blocks[call.block].ops.size() &&
            schedule.blocks[call.block].ops[wait.on] < schedule.operations.size())
          index.wanted[schedule.blocks[call.block].ops[wait.on]] = true;
  }
  bound.ops.reserve(count);
  bound.waits.reserve(waits);

  const std::size_t operations = schedule.operations.size();
  Sequences sequences(schedule);
  std::uint32_t next = 0;  // next operation
  for (const Call& call : program.order) {
    if (call.block >= schedule.blocks.size() ||
        std::size_t(call.first) + call.count > schedule.blocks[call.block].ops.size())
      throw input_error("schedule: a call names operations that its block does not have");
    const Block& block = schedule.blocks[call.block];
    sequences.pass(call, next);
    BoundOp op;
    op.layer = static_cast<std::int32_t>(call.layer);
    op.micro_batch = static_cast<std::int32_t>(call.micro_batch);
    op.chunk = static_cast<std::int16_t>(call.chunk);
    op.slot = static_cast<std::int32_t>(call.slot);
    op.buffer = static_cast<std::int32_t>(call.buffer);
    op.joined = call.joined;
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i) {
      const OpId id = block.ops[i];
      if (id >= operations || schedule.operations[id].lane >= bound.lanes.size())
        throw input_error("schedule: block " + block.name + " names an operation or lane that does not exist");
      op.op = id;
      op.lane = schedule.operations[id].lane;
      auto& lane = bound.lanes[op.lane];
      op.position = static_cast<std::uint32_t>(lane.size());
      lane.push_back(next);
      if (index.wanted[id] &&
          !index.at[id].emplace(instance_key(call.layer, call.micro_batch, call.chunk), next).second)
        throw input_error("schedule: two instances of " + label(schedule, op) + ", so an edge to it is ambiguous");
      bound.ops.push_back(op);
      ++next;
    }
  }

  const auto wait_for = [&](const BoundOp& op, const OpAddress& on, EdgeKind kind) {
    const auto found = index.at[on.op].find(instance_key(on.layer, on.micro_batch, on.chunk));
    if (found == index.at[on.op].end())
      throw input_error("schedule: " + label(schedule, op) + " waits for " + schedule.operations[on.op].name +
                        " layer " + std::to_string(on.layer) + " micro-batch " + std::to_string(on.micro_batch) +
                        ", which the program does not contain");
    const BoundOp& other = bound.ops[found->second];
    bound.waits.push_back({kind, other.lane, static_cast<std::uint8_t>(on.steps_ago), other.position, found->second});
  };
  // The operation that was issued to the queue immediately before this one, from another lane, must start first.
  const QueueOrder queues(schedule, bound);
  sequences.next_step();
  next = 0;
  for (const Call& call : program.order) {
    const Block& block = schedule.blocks[call.block];
    if (call.count == 0 && !call.waits.empty())
      throw input_error("schedule: an empty call of " + block.name + " has waits");
    const Sequences::Ended ended = sequences.pass(call, next);
    auto wait = block.waits.begin();
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i) {
      BoundOp& op = bound.ops[next + i - call.first];
      op.wait_begin = static_cast<std::uint32_t>(bound.waits.size());
      if (i == call.first) {
        for (const Edge& edge : call.waits) wait_for(op, edge.on, edge.kind);
        for (const std::uint32_t on : ended.ops)
          if (bound.ops[on].lane != op.lane)
            bound.waits.push_back({EdgeKind::finish_start, bound.ops[on].lane, std::uint8_t(ended.is_of_step_before),
                                   bound.ops[on].position, on});
      }
      while (wait != block.waits.end() && wait->op < i) ++wait;
      for (; wait != block.waits.end() && wait->op == i; ++wait) {
        if (wait->on >= block.ops.size())
          throw input_error("schedule: a wait in block " + block.name + " names an operation that it does not have");
        if (holds(call, wait->on)) {
          const std::uint32_t on = next + wait->on - call.first;
          bound.waits.push_back({wait->kind, bound.ops[on].lane, 0, bound.ops[on].position, on});
        } else {
          wait_for(op, {block.ops[wait->on], call.layer, call.micro_batch, call.chunk, 0}, wait->kind);
        }
      }
      if (const auto wait = queues.wait_of(next + i - call.first)) bound.waits.push_back(*wait);
      op.wait_end = static_cast<std::uint32_t>(bound.waits.size());
    }
    next += call.count;
  }
  assert(next == bound.ops.size());
  return bound;
}

BoundProgram bind_like(const Schedule& schedule, const BoundProgram& of_role, std::int64_t rank) {
  BoundProgram bound = of_role;
  bound.rank = rank;
  bound.represents.clear();
  bound.ranks = 1;
  bound.coordinates = schedule.mesh.coordinates_of(rank);
  assert(bound.role == schedule.role_of(bound.coordinates));
  for (OpId id = 0; id < schedule.operations.size(); ++id)
    bound.works[id] = evaluate(schedule.operations[id].work, bound.coordinates);
  return bound;
}

std::vector<BoundProgram> bind_representatives(const Schedule& schedule, const Folding& folding,
                                               std::span<const BoundProgram> of_roles) {
  std::vector<BoundProgram> programs;
  const std::vector<std::int64_t> sizes = folding.sizes();
  programs.reserve(sizes.size());
  for (const std::int64_t rank : folding.representatives()) {
    const std::size_t role = schedule.role_of(schedule.mesh.coordinates_of(rank));
    const auto is_of_role = [&](const BoundProgram& other) { return other.role == role; };
    const BoundProgram* like = nullptr;
    for (const std::span<const BoundProgram> known : {of_roles, std::span<const BoundProgram>(programs)})
      if (const auto found = std::find_if(known.begin(), known.end(), is_of_role); found != known.end()) like = &*found;
    BoundProgram& program = programs.emplace_back(like ? bind_like(schedule, *like, rank) : bind(schedule, rank));
    program.ranks = sizes[programs.size() - 1];
    if (!folding.is_by_axes()) continue;
    for (const MeshAxis& axis : schedule.mesh.axes()) {
      const ClassCoordinates coordinates = folding.class_of(axis.coord, program.coordinates[axis.coord]);
      if (coordinates.places > 1) program.represents.push_back({axis.coord, coordinates});
    }
  }
  return programs;
}

Coordinates coordinates_of(const BoundProgram& program, const BoundOp& op) {
  Coordinates at = program.coordinates;
  at[Coord::layer] = op.layer;
  at[Coord::micro_batch] = op.micro_batch;
  at[Coord::chunk] = op.chunk;
  at[Coord::slot] = op.slot;
  at[Coord::buffer] = op.buffer;
  return at;
}

BoundView resolve(const Schedule& schedule, const BoundProgram& program, const BoundOp& op, std::size_t access) {
  const View& view = schedule.operations[op.op].accesses[access].view;
  if (view.tensor >= schedule.tensors.size())
    throw input_error("schedule: " + label(schedule, op) + " accesses a tensor that does not exist");
  const Tensor& tensor = schedule.tensors[view.tensor];
  const Coordinates at = coordinates_of(program, op);
  const std::int64_t layer = view.layer.eval(at), slot = view.slot.eval(at), offset = view.offset.eval(at);
  if (layer < 0 || layer >= tensor.layers || slot < 0 || slot >= tensor.slots)
    throw input_error("schedule: " + label(schedule, op) + " accesses " + tensor.name + "[layer " +
                      std::to_string(layer) + ", slot " + std::to_string(slot) + "]; there are " +
                      std::to_string(tensor.layers) + " x " + std::to_string(tensor.slots));
  const std::int64_t last = offset + (view.rows - 1) * view.ld + view.cols;
  if (offset < 0 || view.rows < 1 || view.cols < 1 || view.ld < view.cols || last > tensor.elements())
    throw input_error("schedule: " + label(schedule, op) + " accesses elements [" + std::to_string(offset) + ", " +
                      std::to_string(last) + ") of " + tensor.name + ", which has " +
                      std::to_string(tensor.elements()));
  const TensorPlace& place = tensor.places[layer * tensor.slots + slot];
  return {place.storage, place.offset + offset, view.rows, view.cols, view.ld, layer};
}

namespace {

bool is_of_layer(const Schedule& schedule, OpId op) {
  const auto depends = [&](OpId id) {
    const std::vector<Access>& accesses = schedule.operations[id].accesses;
    return std::any_of(accesses.begin(), accesses.end(), [](const Access& access) {
      const View& view = access.view;
      return view.layer.depends_on(Coord::layer) || view.slot.depends_on(Coord::layer) ||
             view.offset.depends_on(Coord::layer);
    });
  };
  for (const Block& block : schedule.blocks)
    if (std::find(block.ops.begin(), block.ops.end(), op) != block.ops.end())
      return std::any_of(block.ops.begin(), block.ops.end(), depends);
  return false;
}

}  // namespace

std::string label(const Schedule& schedule, const BoundOp& op) {
  return (op.layer > 0 || is_of_layer(schedule, op.op) ? "h." + std::to_string(op.layer) + " " : "") +
         schedule.operations[op.op].name + " mb " + std::to_string(op.micro_batch) +
         (op.chunk != 0 ? " chunk " + std::to_string(op.chunk) : "");
}

}  // namespace stretto
