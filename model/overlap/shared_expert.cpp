// moe_shared_expert_overlap: the shared expert computes on a lane of its own. Forward, its first product starts when
// rows have begun to leave (dispatch), its second one when results have (combine), and the sum waits for both;
// backward, the gradient of the second product comes first. Its communication over tp is concurrent, too.
//
// Edges:   start of dispatch  ->  fc1 of the shared expert;  start of combine  ->  its fc2  ->  addition
// Exposed: with s_1, s_2 its halves in the order of the pass, d, m, c dispatch, experts and combine:
//          max(d + m + c, max(d + m, s_1) + s_2) - m
#include <optional>
#include <utility>

#include "model/overlap/block_editor.hpp"
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "moe_shared_expert_overlap";

// Sets the shared expert's operations free. The first ones after dispatch and after combine start after those, and
// the addition of its result waits for all of them (Megatron-LM's wait_stream).
void set_free(Lowered& lowered, BlockId id) {
  const Schedule& schedule = lowered.schedule;
  BlockEditor block(lowered, id);
  std::string before;  // the first exchange of rows in a direction, until an operation has been concurrent with it
  std::optional<std::pair<CollectiveKind, Phase>> direction;  // a backward pass may begin with a repeated dispatch
  for (const OpId op : std::vector<OpId>(schedule.blocks[id].ops)) {
    const Operation& operation = schedule.operations[op];
    if (const auto* exchange = std::get_if<Collective>(&operation.work);
        exchange != nullptr && exchange->experts > 0 && direction != std::pair(exchange->kind, operation.phase)) {
      direction = {exchange->kind, operation.phase};
      before = operation.name;
    }
    // Nobody else waits for the shared expert's weight gradients.
    if (operation.name.starts_with("shared.add.")) block.wait_for_all(operation.name);
    if (!operation.name.starts_with("shared.") || operation.name.starts_with("shared.add.")) continue;
    block.set_free(operation.name);
    if (before.empty() || schedule.lanes[operation.lane].kind != LaneKind::compute) continue;
    block.start_after(operation.name, before);
    before.clear();
  }
  block.commit();
}

void rewrite(Lowered& lowered, const Scenario&, const Gates&) {
  for (const BlockId id : lowered.layer_blocks) set_free(lowered, id);
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const bool asked = scenario.overlap.moe_shared_expert_overlap;
  gates.above_one(kKnob, asked, "expert_model_parallel_size", scenario.parallel.expert_model_parallel_size);
  const TokenDispatcher dispatcher = scenario.parallel.moe_token_dispatcher_type;
  gates.add({.knob = kKnob,
             .needs = "moe_token_dispatcher_type alltoall or flex",
             .kind = GateKind::error,
             .source = megatron("core/transformer/transformer_config.py:1820"),
             .asked = asked && scenario.parallel.expert_model_parallel_size > 1,
             .open = dispatcher != TokenDispatcher::allgather,
             .got = std::string("\"") + name_of(dispatcher) + "\""});
  gates.add({.knob = kKnob,
             .needs = "moe_shared_expert_intermediate_size above 0",
             .source = megatron("core/transformer/moe/moe_layer.py:352"),
             .asked = asked,
             .open = scenario.model.experts.has_shared(),
             .why = "the model has no shared expert"});
  const bool repeats = scenario.training.recompute.repeats(Recompute::Module::shared_experts);
  gates.add({.knob = kKnob,
             .needs = "recompute_modules without shared_experts",
             .kind = GateKind::error,
             .source = megatron("core/transformer/transformer_config.py:1991"),
             .asked = asked,
             .open = !repeats,
             .got = repeats ? "it" : ""});
  gates.add({.knob = kKnob,
             .needs = "moe_token_dispatcher_type alltoall",
             .kind = GateKind::acts,
             .source = bridge("training/flex_dispatcher_backend.py:85, which turns it off with flex without a word"),
             .wider = "Megatron-LM's flex dispatcher has it as well",
             .asked = asked});
}

}  // namespace

OverlapMode moe_shared_expert_overlap_mode() {
  return {
      .name = kKnob,
      .meaning = "the shared expert computes on a lane of its own while rows of experts are on the way",
      .knob = kKnob,
      .on = &Overlap::moe_shared_expert_overlap,
      .applies = [](const Parallel& p) { return p.expert_model_parallel_size > 1 && !p.gathers_tokens_for_experts(); },
      .gates = add_gates,
      .rewrite = rewrite};
}

}  // namespace stretto
