#include "model/schedule/derive.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "model/schedule/order.hpp"

namespace stretto {
namespace {

// An operation that touched a storage.
struct Touch {
  OpAddress op;
  int step = 0;
  LaneId lane = 0;
  bool is_free = false, writes = false;
  std::uint32_t count = 0;  // operations of its lane, over all steps, that have finished when it has finished
  std::uint32_t began = 0;  // row of knowledge at the begin of its call; calls have rows in the order of the program
};
// All touches of a storage since a free operation wrote it. A later operation may have to wait for each of these.
using State = std::vector<Touch>;

// Operation `op` of a block touches an instance of a tensor. `before` and `after` are other operations of its lane
// that touch the instance too: in a call with `before`, `op` needs no wait of its own, and whoever waits for `after`
// needs no wait for `op`.
struct Use {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t op = 0, instance = 0;
  bool writes = false;
  std::uint32_t before = kNone, after = kNone;
};
// The operations of a block that are on one lane, in order.
struct LaneOps {
  LaneId lane = 0;
  std::vector<std::uint32_t> ops;
  std::uint32_t place_of(std::uint32_t op) const {
    if (op <= ops.front()) return 0;
    if (op > ops.back()) return static_cast<std::uint32_t>(ops.size());
    return static_cast<std::uint32_t>(std::lower_bound(ops.begin(), ops.end(), op) - ops.begin());
  }
};
struct BlockUses {
  std::vector<const View*> instances;
  std::vector<Use> uses;             // sorted by op
  std::vector<LaneId> lane;          // [op]
  std::vector<std::uint32_t> place;  // [op] position among the operations of its lane
  std::vector<LaneOps> lanes;
};

class Deriver {
 public:
  Deriver(Schedule& schedule, std::span<const OpId> free)
      : schedule_(schedule),
        lanes_(schedule.lanes.size()),
        is_free_(schedule.operations.size()),
        has_uses_(lanes_),
        is_late_(lanes_) {
    for (const OpId op : free) is_free_[op] = true;
    find_uses();
  }

  void run(Program& program, std::int64_t stage) {
    at_[Coord::pp] = stage;
    states_.assign(schedule_.storages.size(), {});
    counts_.assign(lanes_, 0);
    base_.assign(lanes_, 0);
    knowledge_.assign(lanes_, 0);  // the first row knows nothing
    of_lane_.assign(lanes_, 0);
    sequences_.clear();
    free_at_.assign(is_free_.size(), {});
    late_ = 0;
    // The program is visited for two steps, so that the first touches of a step come after the last touches of the
    // previous step. The second visit ends when every lane knows that the first step is over.
    for (step_ = 0; step_ < 2; ++step_) {
      OrderEdits cuts(program);
      for (std::size_t c = 0; c < program.order.size() && (step_ == 0 || late_ > 0); ++c)
        visit(program.order[c], c, cuts);
      if (has_cuts_) cuts.apply();
      has_cuts_ = false;
      for (Sequence& sequence : sequences_) sequence.call = nullptr;
      if (step_ > 0) continue;
      first_step_ = counts_;
      for (LaneId lane = 0; lane < lanes_; ++lane) {
        is_late_[lane] = has_uses_[lane] && counts_[lane] > 0;
        late_ += is_late_[lane];
        if (!is_late_[lane]) first_step_[lane] = 0;
      }
    }
  }

 private:
  using Knowledge = std::vector<std::uint32_t>;  // [lane] number of finished operations
  struct Sequence {
    const Call* call = nullptr;  // the latest call
    Knowledge before, after;     // knowledge when the turn began, and when it has ended
  };

  // Collects the uses of blocks, for storages that free operations touch.
  void find_uses() {
    is_watched_.resize(schedule_.storages.size());
    for (OpId op = 0; op < is_free_.size(); ++op)
      if (is_free_[op])
        for (const Access& access : schedule_.operations[op].accesses)
          for (const TensorPlace& place : schedule_.tensors[access.view.tensor].places)
            is_watched_[place.storage] = true;
    std::vector<bool> has_watched;  // [tensor]
    for (const Tensor& tensor : schedule_.tensors)
      has_watched.push_back(std::any_of(tensor.places.begin(), tensor.places.end(),
                                        [&](const TensorPlace& place) { return is_watched_[place.storage]; }));
    for (const Block& block : schedule_.blocks) {
      BlockUses& b = blocks_.emplace_back();
      for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
        const Operation& operation = schedule_.operations[block.ops[i]];
        b.lane.push_back(operation.lane);
        auto on =
            std::find_if(b.lanes.begin(), b.lanes.end(), [&](const LaneOps& l) { return l.lane == operation.lane; });
        if (on == b.lanes.end()) on = b.lanes.insert(on, {operation.lane, {}});
        b.place.push_back(static_cast<std::uint32_t>(on->ops.size()));
        on->ops.push_back(i);
        for (const Access& access : operation.accesses) {
          if (!has_watched[access.view.tensor]) continue;
          add_use(b, {i, number_of(b.instances, access.view), access.mode != AccessMode::read});
          has_uses_[operation.lane] = true;
        }
      }
    }
  }
  static std::uint32_t number_of(std::vector<const View*>& instances, const View& view) {
    const auto known = std::find_if(instances.begin(), instances.end(), [&](const View* other) {
      return other->tensor == view.tensor && other->layer == view.layer && other->slot == view.slot;
    });
    const auto number = static_cast<std::uint32_t>(known - instances.begin());
    if (known == instances.end()) instances.push_back(&view);
    return number;
  }
  static void add_use(BlockUses& b, Use use) {
    for (Use& other : b.uses) {
      if (other.instance != use.instance || b.lane[other.op] != b.lane[use.op]) continue;
      if (other.writes || !use.writes) use.before = other.op;
      if (other.after == Use::kNone && (use.writes || !other.writes)) other.after = use.op;
    }
    b.uses.push_back(use);
  }

  // ---- knowledge ----

  std::uint32_t* knows(std::uint32_t number) { return knowledge_.data() + number * lanes_; }
  void learn(std::uint32_t* knowledge, const std::uint32_t* from) const {
    const std::size_t lanes = lanes_;
    for (std::size_t l = 0; l < lanes; ++l) knowledge[l] = std::max(knowledge[l], from[l]);
  }
  void learn(std::uint32_t number, const Touch& touch) {
    learn(knows(number), knows(touch.began));
    knows(number)[touch.lane] = std::max(knows(number)[touch.lane], touch.count);
  }
  // Returns the row of what a call knows when its first operation begins.
  std::uint32_t begin(const Call& call, LaneId lane, Sequence* sequence) {
    const auto now = static_cast<std::uint32_t>(knowledge_.size() / lanes_);
    knowledge_.resize(knowledge_.size() + lanes_);
    learn(knows(now), knows(of_lane_[lane]));
    knows(now)[lane] = counts_[lane];
    if (sequence != nullptr) {
      const bool stays =
          call.concurrent || call.joined || (sequence->call != nullptr && continues(*sequence->call, call));
      if (!stays) sequence->before = sequence->after;
      sequence->call = &call;
      learn(knows(now), sequence->before.data());
    }
    for (const Edge& wait : call.waits)
      if (wait.kind == EdgeKind::finish_start && is_free_[wait.on.op])
        if (const Touch* on = find_free(wait.on)) learn(now, *on);
    return now;
  }
  // Returns nullptr when the operation has not been called yet. The search begins at the end because the wanted call is
  // nearly always one of the last.
  const Touch* find_free(const OpAddress& address) const {
    const std::vector<Touch>& all = free_at_[address.op];
    const auto found = std::find_if(all.rbegin(), all.rend(), [&](const Touch& touch) {
      return touch.step == step_ - address.steps_ago && touch.op.layer == address.layer &&
             touch.op.micro_batch == address.micro_batch && touch.op.chunk == address.chunk;
    });
    return found == all.rend() ? nullptr : &*found;
  }
  Sequence* sequence_of(const Call& call) {
    if (call.sequence == 0) return nullptr;
    if (sequences_.size() <= call.sequence) sequences_.resize(call.sequence + std::size_t{1});
    Sequence& sequence = sequences_[call.sequence];
    sequence.before.resize(lanes_);
    sequence.after.resize(lanes_);
    return &sequence;
  }

  // ---- order ----

  void visit(Call& call, std::size_t index, OrderEdits& cuts) {
    if (call.count == 0) return;
    const BlockUses& b = blocks_[call.block];
    const std::uint32_t end = call.first + call.count;
    const OpId first_op = schedule_.blocks[call.block].ops[call.first];
    const bool is_free = is_free_[first_op];
    Sequence* sequence = sequence_of(call);
    const std::uint32_t now = begin(call, b.lane[call.first], sequence);
    watched_.clear();
    if (!b.instances.empty()) at_ = coordinates_of(call, at_);
    bool touches = false;
    for (const View* instance : b.instances) {
      const StorageId storage = storage_of(schedule_, *instance, at_);
      watched_.push_back(is_watched_[storage] ? &states_[storage] : nullptr);
      touches = touches || is_watched_[storage];
    }
    const auto uses = touches ? std::span<const Use>(b.uses) : std::span<const Use>();
    for (const Use& use : uses)
      if (use.op >= call.first && use.op < end && (use.before == Use::kNone || use.before < call.first) &&
          watched_[use.instance])
        wait_for(call, index, use, *watched_[use.instance], is_free, now, cuts);

    for (const LaneOps& on : b.lanes) {
      const std::uint32_t before = on.place_of(call.first), after = on.place_of(end);
      if (before == after) continue;
      base_[on.lane] = counts_[on.lane] - before;
      counts_[on.lane] += after - before;
      if (!is_covered(call, on.lane)) continue;
      of_lane_[on.lane] = now;
      if (step_ > 0 && is_late_[on.lane] &&
          std::equal(first_step_.begin(), first_step_.end(), knows(now), std::less_equal()))
        is_late_[on.lane] = false, --late_;
    }
    for (const Use& use : uses)
      if (use.op >= call.first && use.op < end && use.after >= end && watched_[use.instance])
        touch(*watched_[use.instance], touch_of(call, use.op, use.writes, is_free));
    if (is_free) free_at_[first_op].push_back(touch_of(call, call.first, false, true));
    if (sequence == nullptr) return;
    learn(sequence->after.data(), knows(now));
    for (const LaneOps& on : b.lanes)
      if (on.place_of(call.first) < on.place_of(end)) sequence->after[on.lane] = counts_[on.lane];
  }

  Touch touch_of(const Call& call, std::uint32_t i, bool writes, bool is_free) const {
    const BlockUses& b = blocks_[call.block];
    const LaneId lane = b.lane[i];
    const OpAddress address{schedule_.blocks[call.block].ops[i], call.layer, call.micro_batch, call.chunk, 0};
    return {address, step_, lane, is_free, writes, base_[lane] + b.place[i] + 1, of_lane_[lane]};
  }

  // A free operation that writes has waited for all touches before it, so they are forgotten. Another operation forgets
  // neither a free operation on another lane nor a touch that it does not wait for.
  void touch(State& state, const Touch& now) {
    const auto is_past = [&](const Touch& other) {
      if (now.is_free && now.writes) return true;
      if ((other.is_free && !now.is_free) || (other.writes && !now.writes)) return false;
      return other.lane == now.lane || (now.writes && knows(now.began)[other.lane] >= other.count);
    };
    const auto past = std::find_if(state.begin(), state.end(), is_past);
    if (past == state.end()) return state.push_back(now);
    *past = now;
    state.erase(std::remove_if(past + 1, state.end(), is_past), state.end());
  }

  // Returns whether the call's first wait covers the lane: no lane begins a block before the block's first operation
  // has started. For a part of a block, that holds on one lane only.
  bool is_covered(const Call& call, LaneId lane) const {
    return call.first == 0 || lane == blocks_[call.block].lane[call.first];
  }

  void wait_for(Call& call, std::size_t index, const Use& use, const State& state, bool is_free, std::uint32_t now,
                OrderEdits& cuts) {
    const LaneId lane = blocks_[call.block].lane[use.op];
    const bool waits_with_call = is_covered(call, lane);
    const std::uint32_t known = waits_with_call ? now : of_lane_[lane];
    while (true) {
      const Touch* latest = nullptr;
      const auto consider = [&](const Touch& other) {
        if (!is_free && !other.is_free) return;
        if (other.lane == lane || knows(known)[other.lane] >= other.count || is_done(other)) return;
        if (latest == nullptr || other.began > latest->began) latest = &other;
      };
      for (const Touch& other : state)
        if (use.writes || other.writes) consider(other);
      if (latest == nullptr) break;
      // In the second step only waits for the first step are new.
      if (step_ == 0 || latest->step == 0) {
        OpAddress on = latest->op;
        on.steps_ago = step_ - latest->step;
        if (waits_with_call)
          call.waits.push_back({EdgeKind::finish_start, on});
        else
          cuts.wait({index, use.op - call.first}, {EdgeKind::finish_start, on}), has_cuts_ = true;
      }
      if (waits_with_call)
        learn(now, *latest);
      else
        done_.push_back(*latest);
    }
    done_.clear();
  }
  bool is_done(const Touch& other) const {
    return std::any_of(done_.begin(), done_.end(),
                       [&](const Touch& done) { return done.lane == other.lane && done.count >= other.count; });
  }

  Schedule& schedule_;
  const std::size_t lanes_;
  std::vector<bool> is_free_;      // [operation]
  std::vector<bool> is_watched_;   // [storage] free operations touch it
  std::vector<bool> has_uses_;     // [lane]
  std::vector<BlockUses> blocks_;  // [block]
  // ---- state of the visit ----
  Coordinates at_;
  int step_ = 0;
  bool has_cuts_ = false;
  std::vector<std::uint32_t> first_step_;  // [lane] operations of the first step, as far as others may wait for them
  std::vector<bool> is_late_;              // [lane] the lane does not know yet that the first step is over
  std::size_t late_ = 0;                   // number of late lanes
  std::vector<State> states_;              // [storage]
  std::vector<std::uint32_t> counts_;      // [lane] operations so far
  std::vector<std::uint32_t> base_;        // [lane] operations at the begin of the called block
  std::vector<std::uint32_t> knowledge_;   // [number · lanes + lane] number of finished operations
  std::vector<std::uint32_t> of_lane_;     // [lane] what its last operation knew when that operation's call began
  std::vector<Sequence> sequences_;
  std::vector<std::vector<Touch>> free_at_;  // [operation] touches of free operations, in the order of calls
  std::vector<State*> watched_;              // [instance] of the call; nullptr: no free operation touches it
  std::vector<Touch> done_;                  // what this operation alone waits for
};

}  // namespace

void derive_waits(Schedule& schedule, std::span<const OpId> free) {
  if (free.empty()) return;
  Deriver deriver(schedule, free);
  for (std::size_t role = 0; role < schedule.programs.size(); ++role)
    deriver.run(schedule.programs[role], static_cast<std::int64_t>(role));
}

}  // namespace stretto
