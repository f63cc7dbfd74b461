#include "model/schedule/derive.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
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
  bool is_free = false;
  std::uint32_t count = 0;  // operations of its lane that have finished when it has, of all steps
  std::uint32_t began = 0;  // knowledge that its call began with; calls have them in the order of the program
};

// Who touched a storage since it was written last.
struct State {
  std::optional<Touch> write;
  std::vector<Touch> reads;  // the last of each lane
};

// An instance of a tensor as the operations of a block name it.
struct Instance {
  TensorId tensor = 0;
  const View* view = nullptr;
  std::string text;  // of its layer and slot
};
struct Use {
  std::uint32_t op = 0, instance = 0;
  bool writes = false;
};
struct BlockUses {
  std::vector<Instance> instances;
  std::vector<Use> uses;     // by op
  std::vector<LaneId> lane;  // [op]
};

class Deriver {
 public:
  Deriver(Schedule& schedule, std::span<const OpId> free)
      : schedule_(schedule), lanes_(schedule.lanes.size()), is_free_(schedule.operations.size()) {
    for (const OpId op : free) is_free_[op] = true;
    find_uses();
  }

  void run(Program& program, std::int64_t stage) {
    stage_ = stage;
    states_.assign(schedule_.storages.size(), {});
    counts_.assign(lanes_, 0);
    knowledge_.assign(lanes_, 0);  // the first of it: nothing
    of_lane_.assign(lanes_, 0);
    sequences_.clear();
    free_at_.clear();
    // Twice, so that what a step touches first comes after what the step before touched last.
    for (step_ = 0; step_ < 2; ++step_) {
      OrderEdits cuts(program);
      for (std::size_t c = 0; c < program.order.size(); ++c) visit(program.order[c], c, cuts);
      if (has_cuts_) cuts.apply();
      has_cuts_ = false;
      for (auto& [number, sequence] : sequences_) sequence.call = nullptr;
    }
  }

 private:
  using Key = std::tuple<OpId, std::int64_t, std::int64_t, std::int64_t>;
  struct Sequence {
    const Call* call = nullptr;            // the last
    std::uint32_t before = 0, behind = 0;  // knowledge when the turn began, and when it has ended
  };

  // Of blocks, only what touches storages that free operations touch.
  void find_uses() {
    std::vector<bool> is_watched(schedule_.storages.size());
    for (OpId op = 0; op < is_free_.size(); ++op)
      if (is_free_[op])
        for (const Access& access : schedule_.operations[op].accesses)
          for (const TensorPlace& place : schedule_.tensors[access.view.tensor].places)
            is_watched[place.storage] = true;
    std::vector<bool> has_watched;  // [tensor]
    for (const Tensor& tensor : schedule_.tensors)
      has_watched.push_back(std::any_of(tensor.places.begin(), tensor.places.end(),
                                        [&](const TensorPlace& place) { return is_watched[place.storage]; }));
    for (const Block& block : schedule_.blocks) {
      BlockUses& b = blocks_.emplace_back();
      for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
        const Operation& operation = schedule_.operations[block.ops[i]];
        b.lane.push_back(operation.lane);
        for (const Access& access : operation.accesses)
          if (has_watched[access.view.tensor])
            b.uses.push_back({i, number_of(b.instances, access.view), access.mode != AccessMode::read});
      }
    }
  }
  static std::uint32_t number_of(std::vector<Instance>& instances, const View& view) {
    const std::string text = view.layer.text() + "," + view.slot.text();
    const auto known = std::find_if(instances.begin(), instances.end(), [&](const Instance& other) {
      return other.tensor == view.tensor && other.text == text;
    });
    const auto number = static_cast<std::uint32_t>(known - instances.begin());
    if (known == instances.end()) instances.push_back({view.tensor, &view, text});
    return number;
  }

  StorageId storage_of(const Instance& instance, const Call& call) const {
    Coordinates at;
    at[Coord::layer] = call.layer;
    at[Coord::micro_batch] = call.micro_batch;
    at[Coord::chunk] = call.chunk;
    at[Coord::slot] = call.slot;
    at[Coord::buffer] = call.buffer;
    at[Coord::pp] = stage_;
    const Tensor& tensor = schedule_.tensors[instance.tensor];
    return tensor
        .places[static_cast<std::size_t>(instance.view->layer.eval(at) * tensor.slots + instance.view->slot.eval(at))]
        .storage;
  }

  // ---- knowledge: how many operations of each lane have finished ----

  std::uint32_t* knows(std::uint32_t number) { return knowledge_.data() + number * lanes_; }
  std::uint32_t add_knowledge() {
    knowledge_.resize(knowledge_.size() + lanes_);
    return static_cast<std::uint32_t>(knowledge_.size() / lanes_) - 1;
  }
  void learn(std::uint32_t number, std::uint32_t from) {
    for (std::size_t l = 0; l < lanes_; ++l) knows(number)[l] = std::max(knows(number)[l], knows(from)[l]);
  }
  void learn(std::uint32_t number, const Touch& touch) {
    learn(number, touch.began);
    knows(number)[touch.lane] = std::max(knows(number)[touch.lane], touch.count);
  }
  // What a call knows when its first operation begins.
  std::uint32_t begin(const Call& call, LaneId lane, Sequence* sequence) {
    const std::uint32_t now = add_knowledge();
    learn(now, of_lane_[lane]);
    knows(now)[lane] = counts_[lane];
    if (sequence != nullptr) {
      const bool stays = call.beside || call.joined || (sequence->call != nullptr && continues(*sequence->call, call));
      if (!stays) sequence->before = sequence->behind;
      sequence->call = &call;
      learn(now, sequence->before);
    }
    for (const Edge& wait : call.waits)
      if (wait.kind == EdgeKind::finish_start && is_free_[wait.on.op])
        if (const auto on = free_at_.find({wait.on.op, wait.on.layer, wait.on.micro_batch, wait.on.chunk});
            on != free_at_.end() && on->second.step == step_ - wait.on.steps_ago)
          learn(now, on->second);
    return now;
  }

  // ---- the order ----

  void visit(Call& call, std::size_t index, OrderEdits& cuts) {
    if (call.count == 0) return;
    const Block& block = schedule_.blocks[call.block];
    const BlockUses& b = blocks_[call.block];
    const bool is_free = is_free_[block.ops[call.first]];
    Sequence* sequence = call.sequence == 0 ? nullptr : &sequences_[call.sequence];
    const std::uint32_t now = begin(call, b.lane[call.first], sequence);
    const auto inside = [&](const Use& use) { return use.op >= call.first && use.op - call.first < call.count; };
    storages_.clear();
    for (const Instance& instance : b.instances) storages_.push_back(storage_of(instance, call));
    for (const Use& use : b.uses)
      if (inside(use)) wait_for(call, index, use, states_[storages_[use.instance]], is_free, now, cuts);

    auto use = std::find_if(b.uses.begin(), b.uses.end(), inside);
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i) {
      const LaneId lane = b.lane[i];
      ++counts_[lane];
      if (is_covered(call, lane)) of_lane_[lane] = now;
      const OpAddress address{block.ops[i], call.layer, call.micro_batch, call.chunk, 0};
      for (; use != b.uses.end() && use->op == i; ++use)
        touch(states_[storages_[use->instance]], use->writes,
              {address, step_, lane, is_free, counts_[lane], of_lane_[lane]});
    }
    if (is_free) {
      const LaneId lane = b.lane[call.first];
      const OpAddress address{block.ops[call.first], call.layer, call.micro_batch, call.chunk, 0};
      free_at_[{address.op, call.layer, call.micro_batch, call.chunk}] = {address, step_,         lane,
                                                                          true,    counts_[lane], now};
    }
    if (sequence == nullptr) return;
    const std::uint32_t behind = add_knowledge();
    learn(behind, now);
    learn(behind, sequence->behind);
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i) knows(behind)[b.lane[i]] = counts_[b.lane[i]];
    sequence->behind = behind;
  }

  static void touch(State& state, bool writes, const Touch& now) {
    if (writes) {
      state.write = now;
      state.reads.clear();
      return;
    }
    const auto same =
        std::find_if(state.reads.begin(), state.reads.end(), [&](const Touch& read) { return read.lane == now.lane; });
    if (same == state.reads.end())
      state.reads.push_back(now);
    else
      *same = now;
  }

  // No lane begins a block before its first operation has started. Of a part of a block, that is so on one lane only.
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
      if (state.write) consider(*state.write);
      if (use.writes)
        for (const Touch& read : state.reads) consider(read);
      if (latest == nullptr) break;
      // Of the second step, only what it waits for in the first is new.
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
  std::vector<BlockUses> blocks_;  // [block]
  // Of the program:
  std::int64_t stage_ = 0;
  int step_ = 0;
  bool has_cuts_ = false;
  std::vector<State> states_;             // [storage]
  std::vector<std::uint32_t> counts_;     // [lane] operations so far
  std::vector<std::uint32_t> knowledge_;  // [number · lanes + lane]
  std::vector<std::uint32_t> of_lane_;    // [lane] what its last operation knew when its call began
  std::map<std::uint8_t, Sequence> sequences_;
  std::map<Key, Touch> free_at_;     // the last time that a free operation was called so
  std::vector<StorageId> storages_;  // [instance] of the call
  std::vector<Touch> done_;          // what the operation waits for alone
};

}  // namespace

void derive_waits(Schedule& schedule, std::span<const OpId> free) {
  if (free.empty()) return;
  Deriver deriver(schedule, free);
  for (std::size_t role = 0; role < schedule.programs.size(); ++role)
    deriver.run(schedule.programs[role], static_cast<std::int64_t>(role));
}

}  // namespace stretto
