// fsdp_comm_overlap: communication of ZeRO-2 and ZeRO-3 (model/lower/sharded) overlaps with compute. Parameters of a
// unit are gathered `fsdp_prefetch_depth` uses ahead, on a lane of their own, and gradients are reduced after their
// backward pass, on another lane (PyTorch's FSDP2, which is one ahead; Megatron-FSDP).
//
// Edges:   start of use i − depth  →  gather of use i starts (start→start);  gather i  →  use i, derived
//          last use of a buffer  →  next gather into it;  AdamW of the previous step  →  gather, derived
//          backward pass of a unit  →  reduce-scatter  →  addition to the shard, derived. The addition is computed when
//          the buffer is needed again, two layers later, or before the optimizer.
// Order:   a use is a call that needs a gather: a unit's forward, recomputation or backward. With ZeRO-2 only the first
//          use in a step needs one.
// Exposed: s_i = max(t_i, g_i), g_i = max(s_{i−depth}, e_i, g_{i−1}) + a_i, where e_i is the end of the last use of its
//          buffer, which is later only where the order of layers turns round. So exposed are the first gather of a
//          step, and the time by which a gather exceeds its concurrent use; of reductions the last one, and the time
//          that the compute lane waits for a buffer.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "model/overlap/mode.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "fsdp_comm_overlap";

class Rewrite {
 public:
  Rewrite(Lowered& lowered, Program& program, std::int64_t depth)
      : lowered_(lowered),
        schedule_(lowered.schedule),
        program_(program),
        depth_(static_cast<std::size_t>(depth)),
        edits_(program_) {}

  void run() {
    find_uses();
    move_gathers();
    move_reductions();
    edits_.apply();
  }

 private:
  struct Use {
    std::size_t call = 0;
    std::vector<std::size_t> gathers;  // gather calls
    std::size_t free_after = 0;        // the last earlier call that uses their buffers; 0: none in this step
  };
  OpId op_of(const Call& call) const { return schedule_.blocks[call.block].ops[call.first]; }
  bool is_one_of(std::size_t call, const std::set<OpId>& ops) const {
    return ops.contains(op_of(program_.order[call]));
  }

  StorageId target_of(const Call& gather) const {
    return storage_of(schedule_, schedule_.operations[op_of(gather)].accesses.back().view, coordinates_of(gather));
  }

  void find_uses() {
    const std::set<OpId>& gathers = lowered_.sharded.gathers;
    find_readers();
    std::vector<std::size_t> open;  // gathers whose use has not come yet
    std::map<StorageId, std::size_t> last_user;
    std::size_t free_after = 0;
    for (std::size_t c = 0; c < program_.order.size(); ++c) {
      const Call& call = program_.order[c];
      if (is_one_of(c, gathers)) {
        open.push_back(c);
        if (const auto user = last_user.find(target_of(call)); user != last_user.end())
          free_after = std::max(free_after, user->second);
        continue;
      }
      if (!open.empty()) uses_.push_back({c, std::exchange(open, {}), std::exchange(free_after, 0)});
      for (const View* view : readers_[call.block]) last_user[storage_of(schedule_, *view, coordinates_of(call))] = c;
    }
    if (open.empty()) return;
    // Gathers at the end of the step serve the next step.
    std::vector<StorageId> storages;
    for (const std::size_t c : open) storages.push_back(target_of(program_.order[c]));
    const auto first = first_users(schedule_, program_, storages);
    std::map<std::size_t, std::vector<std::size_t>> by_use;
    for (std::size_t g = 0; g < open.size(); ++g) {
      if (!first[g]) throw std::logic_error("no operation uses storage " + schedule_.storages[storages[g]].name);
      by_use[first[g]->call].push_back(open[g]);
    }
    for (auto& [call, of_use] : by_use) uses_.push_back({call, std::move(of_use)});
    is_for_next_step_ = true;
  }

  // Finds the views of blocks that lie in gathered storages.
  void find_readers() {
    std::set<StorageId> gathered;
    for (const OpId op : lowered_.sharded.gathers)
      for (const TensorPlace& place : schedule_.tensors[schedule_.operations[op].accesses.back().view.tensor].places)
        gathered.insert(place.storage);
    readers_.resize(schedule_.blocks.size());
    for (BlockId b = 0; b < schedule_.blocks.size(); ++b)
      for (const OpId op : schedule_.blocks[b].ops)
        for (const Access& access : schedule_.operations[op].accesses)
          if (gathered.contains(schedule_.tensors[access.view.tensor].places.front().storage))
            readers_[b].push_back(&access.view);
  }

  void move_gathers() {
    if (depth_ == 0 && !is_for_next_step_) return;  // the gathers already are where they are needed
    // Positions of the gathers: each comes after its release and after the last use of its buffers, and no gather
    // overtakes another.
    std::vector<OrderPosition> at(uses_.size());
    for (std::size_t u = 0; u < uses_.size(); ++u) {
      if (depth_ == 0) {
        at[u] = {uses_[u].call, 0};
        continue;
      }
      if (u >= depth_) at[u] = {uses_[u - depth_].call, 1};
      if (uses_[u].free_after > 0) at[u] = std::max(at[u], {uses_[u].free_after + 1, 0});
      if (u > 0) at[u] = std::max(at[u], at[u - 1]);
    }
    for (std::size_t u = uses_.size(); u-- > 0;) {
      std::vector<Call> gathers;
      for (const std::size_t c : uses_[u].gathers) {
        gathers.push_back(program_.order[c]);
        edits_.remove(c);
        if (depth_ == 0) continue;
        gathers.back().sequence = 0;
        lowered_.free.push_back(op_of(gathers.back()));
      }
      if (depth_ > 0 && u >= depth_)
        gathers.front().waits.push_back(
            {EdgeKind::start_start, address_of(schedule_, program_, {uses_[u - depth_].call, 0})});
      edits_.insert(at[u], std::move(gathers));
    }
  }

  void move_reductions() {
    std::map<StorageId, std::vector<std::size_t>> late;  // [gradient's buffer] additions that are not placed yet
    const auto insert = [&](std::size_t before, const std::vector<std::size_t>& additions) {
      std::vector<Call> calls;
      for (const std::size_t c : additions) calls.push_back(program_.order[c]);
      if (!calls.empty()) edits_.insert({before, 0}, std::move(calls));
    };
    for (std::size_t c = 0; c < program_.order.size(); ++c) {
      Call& call = program_.order[c];
      const OpId op = op_of(call);
      const auto buffer_of = [&](TensorId gradient) {
        const auto& places = schedule_.tensors[gradient].places;
        return places[places.size() > 1 ? static_cast<std::size_t>(call.layer) : 0].storage;
      };
      if (lowered_.sharded.reductions.contains(op)) {
        call.sequence = 0;
        lowered_.free.push_back(op);
      } else if (const auto addition = lowered_.sharded.additions.find(op);
                 addition != lowered_.sharded.additions.end()) {
        late[buffer_of(addition->second)].push_back(c);
        edits_.remove(c);
      } else if (lowered_.sharded.zeros.contains(op)) {
        insert(c, std::exchange(late[buffer_of(schedule_.operations[op].accesses.front().view.tensor)], {}));
      }
    }
    // The remaining additions come before the optimizer, and after the last messages, which other stages wait for.
    std::vector<std::size_t> rest;
    for (const auto& [storage, additions] : late) rest.insert(rest.end(), additions.begin(), additions.end());
    if (rest.empty()) return;
    std::sort(rest.begin(), rest.end());
    std::size_t end = rest.back() + 1;
    while (std::holds_alternative<PointToPoint>(schedule_.operations[op_of(program_.order[end])].work)) ++end;
    insert(end, rest);
  }

  Lowered& lowered_;
  Schedule& schedule_;
  Program& program_;
  const std::size_t depth_;
  OrderEdits edits_;
  std::vector<Use> uses_;
  std::vector<std::vector<const View*>> readers_;  // [block]
  bool is_for_next_step_ = false;
};

void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& parallel = scenario.parallel;
  const char* key = "data_parallel_sharding_strategy";
  const std::string value = "\"" + std::string(name_of(parallel.data_parallel_sharding_strategy)) + "\"";
  gates.above_one(kKnob, scenario.overlap.fsdp_comm_overlap, Parallel::kReplicas, parallel.replicas());
  gates.add({.knob = kKnob,
             .needs = std::string(key) + " from optim_grads on",
             .source = kNothingToActOn,
             .asked = scenario.overlap.fsdp_comm_overlap,
             .open = parallel.shards_gradients(),
             .why = std::string(key) + " is " + value + ", which overlap_grad_reduce overlaps"});
  gates.add({.knob = "fsdp_prefetch_depth",
             .needs = std::string(kKnob) + " = true",
             .source = kNothingToActOn,
             .asked = scenario.overlap.fsdp_prefetch_depth != Overlap{}.fsdp_prefetch_depth,
             .open = scenario.overlap.fsdp_comm_overlap,
             .why = "it needs fsdp_comm_overlap = true; parameters are gathered when needed"});
  gates.add({.knob = kKnob,
             .needs = "cuda_device_max_connections other than 1",
             .kind = GateKind::error,
             .source = megatron("arguments.py:1166"),
             .asked = scenario.overlap.fsdp_comm_overlap && parallel.shards_gradients() && parallel.replicas() > 1,
             .open = scenario.cluster.cuda_device_max_connections != 1,
             .got = std::to_string(scenario.cluster.cuda_device_max_connections),
             .why = "with one hardware queue a gather that is issued ahead holds back the compute after it",
             .section = "cluster",
             .key = "cuda_device_max_connections"});
  gates.above_one(std::string(key) + " from optim_grads on", parallel.shards_gradients(), Parallel::kReplicas,
                  parallel.replicas());
  gates.add({.knob = std::string(key) + " from optim_grads on",
             .needs = "pipeline_model_parallel_size = 1",
             .kind = GateKind::acts,
             .source = megatron("arguments.py:1034, an error of --use-torch-fsdp2; Megatron-FSDP has no such gate"),
             .wider = "stages shard for themselves; reshard_after_forward says whether after each micro-batch",
             .asked = parallel.shards_gradients()});
}

}  // namespace

OverlapMode fsdp_comm_overlap_mode() {
  return {.name = kKnob,
          .meaning = "ZeRO-2 and ZeRO-3: parameters are gathered ahead of their use, gradients are reduced after it",
          .memory = "fsdp_prefetch_depth more layers of whole parameters (ZeRO-3), one of whole gradients",
          .knob = kKnob,
          .on = &Overlap::fsdp_comm_overlap,
          .applies = [](const Parallel& p) { return p.shards_gradients(); },
          .gates = add_gates,
          .rewrite =
              [](Lowered& lowered, const Scenario& scenario, const Gates&) {
                for (Program& program : lowered.schedule.programs)
                  Rewrite(lowered, program, scenario.overlap.fsdp_prefetch_depth).run();
              },
          .stage = RewriteStage::attach_data_parallel};
}

}  // namespace stretto
