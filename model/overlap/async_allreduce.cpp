// async_tensor_model_parallel_allreduce (Megatron-LM's asynchronous linear layers): without sequence parallelism, the
// all-reduce of the dgrad is concurrent with the wgrad.
//
// Edges:   dgrad  →  all-reduce  →  first reader of the sum, and no longer  →  wgrad
// Exposed: max(0, T_AR − T_wgrad)
#include <string>
#include <vector>

#include "model/overlap/block_editor.hpp"
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "async_tensor_model_parallel_allreduce";

void rewrite(Lowered& lowered, const Scenario&, const Gates&) {
  std::vector<BlockId> blocks = lowered.end_blocks;
  blocks.insert(blocks.end(), lowered.backward_blocks.begin(), lowered.backward_blocks.end());
  for (const BlockId id : blocks) {
    BlockEditor block(lowered, id);
    for (const char* layer : {"fc1", "fc1.numbers", "qkv", "qkv.numbers", "lm_head"})
      if (const std::string name = std::string(layer) + ".dgrad.all_reduce"; block.has(name)) block.set_free(name);
    block.commit();
  }
}

// sequence_parallel decides which tensor-parallel modes act, this one or those of tp_comm_overlap, so its gate comes
// first.
void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& p = scenario.parallel;
  const bool asked = scenario.overlap.async_tensor_model_parallel_allreduce;
  const GateSource source = megatron("core/tensor_parallel/layers.py:1144, where it is on always");
  gates.above_one("sequence_parallel", p.sequence_parallel, "tensor_model_parallel_size", p.tensor_model_parallel_size,
                  megatron("arguments.py:1433, with a warning"));
  gates.above_one(kKnob, asked, "tensor_model_parallel_size", p.tensor_model_parallel_size, source);
  gates.add({.knob = kKnob,
             .needs = "sequence_parallel = false",
             .source = source,
             .asked = asked,
             .open = !p.sequence_parallel,
             .why = "sequence_parallel is on, which has no all-reduce; tp_comm_overlap acts"});
}

}  // namespace

OverlapMode async_allreduce_mode() {
  return {.name = kKnob,
          .meaning = "data gradients are summed over tp during the layer's weight gradient",
          .knob = kKnob,
          .on = &Overlap::async_tensor_model_parallel_allreduce,
          .applies = [](const Parallel& p) { return p.tensor_model_parallel_size > 1 && !p.sequence_parallel; },
          .gates = add_gates,
          .rewrite = rewrite};
}

}  // namespace stretto
