// overlap_dispatch_backward_with_experts_wgrad: in the backward pass of one micro-batch the weight gradients of experts
// are computed while the gradients of their rows are on the way back. Megatron-LM computes them on a stream of their
// own, because its exchanges block the stream of the backward pass, which then waits for them. Here the exchange has a
// lane of its own, and nothing else could compute meanwhile: the lane of computation is enough, with the same times.
//
// Edges:   fc1's dgrad  ->  combine  ->  permute, no longer  ->  weight gradients of experts
// Exposed: max(0, T_combine - T_wgrad)
#include "model/overlap/block_editor.hpp"
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "overlap_dispatch_backward_with_experts_wgrad";

void rewrite(Lowered& lowered, const Scenario&, const Gates&) {
  for (const BlockId id : lowered.backward_blocks) {
    BlockEditor block(lowered, id);
    for (const char* name : {"experts.combine.dgrad", "experts.weights.combine.dgrad"})
      if (block.has(name)) block.set_free(name);
    block.commit();
  }
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const bool asked = scenario.overlap.overlap_dispatch_backward_with_experts_wgrad;
  gates.above_one(kKnob, asked, "expert_model_parallel_size", scenario.parallel.expert_model_parallel_size,
                  megatron("core/transformer/moe/moe_layer.py:440, where nothing is on the way"));
  gates.trains(kKnob, asked, scenario);
  const bool pairs = scenario.overlap.overlap_moe_expert_parallel_comm;
  gates.add({.knob = kKnob,
             .needs = "overlap_moe_expert_parallel_comm = false",
             .kind = GateKind::error,
             .source = megatron("core/transformer/transformer_config.py:3085, and 3092 of delay_wgrad_compute"),
             .asked = asked,
             .open = !pairs,
             .got = pairs ? "true" : "false"});
  gates.add({.knob = kKnob,
             .needs = "TransformerEngine 2.3 or later",
             .kind = GateKind::acts,
             .source = megatron("core/transformer/transformer_config.py:3089"),
             .wider = "a schedule knows no version of the library",
             .asked = asked});
}

}  // namespace

OverlapMode overlap_dispatch_backward_with_experts_wgrad_mode() {
  return {.name = kKnob,
          .meaning = "weight gradients of experts while the gradients of their rows are on the way back",
          .memory = "gradients of experts' inputs",
          .knob = kKnob,
          .on = &Overlap::overlap_dispatch_backward_with_experts_wgrad,
          .applies = [](const Parallel& p) { return p.expert_model_parallel_size > 1; },
          .gates = add_gates,
          .rewrite = rewrite};
}

}  // namespace stretto
