// Tensor-parallel communication of a column-parallel layer's backward pass beside the two GEMMs of that layer.
//
// With sequence parallelism (Megatron-LM tp_comm_overlap with tp_comm_bulk_dgrad and tp_comm_bulk_wgrad; bulk overlap
// of TransformerEngine's userbuffers):
//   bulk dgrad: all-gather of the layer's input, which the wgrad needs, beside the dgrad.  Exposed: max(0, T_AG −
//   T_dgrad) bulk wgrad: reduce-scatter of the dgrad beside the wgrad.                              Exposed: max(0,
//   T_RS − T_wgrad)
// Without (Megatron-LM's async_tensor_model_parallel_allreduce): all-reduce of the dgrad beside the wgrad.
//
// Edges:   compute before the layer → AG → wgrad;  dgrad → RS → first reader of the sum.
// Order:   AG, dgrad, RS, wgrad in issue order: communication first, as CUDA_DEVICE_MAX_CONNECTIONS=1 needs it.
#include <algorithm>
#include <stdexcept>

#include "model/overlap/overlap.hpp"

namespace stretto {
namespace {

std::uint32_t index_of(const Schedule& schedule, const Block& block, const std::string& name) {
  for (std::uint32_t i = 0; i < block.ops.size(); ++i)
    if (schedule.operations[block.ops[i]].name == name) return i;
  throw std::logic_error("block " + block.name + " has no operation " + name);
}

// `from` no longer waits for `on`, but `to` does.
void move_wait(Block& block, std::uint32_t from, std::uint32_t on, std::uint32_t to) {
  std::erase_if(block.waits, [&](const BlockWait& wait) { return wait.op == from && wait.on == on; });
  block.waits.push_back({to, EdgeKind::finish_start, on, 0});
  std::stable_sort(block.waits.begin(), block.waits.end(),
                   [](const BlockWait& a, const BlockWait& b) { return a.op < b.op; });
}

}  // namespace

void rewrite_tp_backward(Lowered& lowered, bool beside_dgrad, bool beside_wgrad) {
  Schedule& schedule = lowered.schedule;
  for (const ColumnParallel& layer : lowered.column_parallel) {
    Block& block = schedule.blocks[layer.backward];
    const std::uint32_t dgrad = index_of(schedule, block, layer.name + ".dgrad"),
                        wgrad = index_of(schedule, block, layer.name + ".wgrad"),
                        reader = index_of(schedule, block, layer.reader);
    if (beside_dgrad) move_wait(block, dgrad, index_of(schedule, block, layer.name + ".all_gather_wgrad"), wgrad);
    if (beside_wgrad) move_wait(block, wgrad, index_of(schedule, block, layer.reduction), reader);
  }
}

}  // namespace stretto
