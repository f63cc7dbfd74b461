// Which communication of a layer is overlapped how (Megatron-LM's tp_comm_overlap, TransformerEngine's user buffers),
// and the all-reduce of Megatron-LM's asynchronous linear layers.
#include <algorithm>

#include "model/lower/builder.hpp"
#include "model/overlap/overlap.hpp"
#include "model/overlap/tp_split.hpp"

namespace stretto {
namespace {

bool is_split(const TpGemm& gemm) {
  return gemm.method == TpMethod::ring_exchange || gemm.method == TpMethod::pipeline;
}

class TpOverlap {
 public:
  TpOverlap(Lowered& lowered, const TpMethods& methods, std::int64_t compute_lanes)
      : lowered_(lowered), methods_(methods), context_{lowered.schedule} {
    Schedule& schedule = lowered.schedule;
    context_.n = schedule.mesh.size(Coord::tp);
    context_.compute = {lowered.compute};
    context_.tp = lowered.tp_lane;
    context_.tp_communicator = lowered.tp_communicator;
    const auto all = {&methods.qkv_fprop,  &methods.fc1_fprop, &methods.proj_dgrad, &methods.fc2_dgrad,
                      &methods.proj_fprop, &methods.fc2_fprop, &methods.qkv_dgrad,  &methods.fc1_dgrad};
    const bool exchanges =
        std::any_of(all.begin(), all.end(), [](const TpGemm* gemm) { return gemm->method == TpMethod::ring_exchange; });
    context_.send = context_.recv = context_.tp;
    // As in TransformerEngine, whose communication streams have the highest priority.
    schedule.lanes[context_.tp].priority = kHighPriority;
    if (exchanges) {
      context_.send = add_lane("tp.send", LaneKind::communication, kHighPriority);
      context_.recv = add_lane("tp.recv", LaneKind::communication, kHighPriority);
      schedule.communicators.push_back({"tp.ring", {Coord::tp}, CommEngine::copy_engine, 1, context_.n});
      context_.ring_communicator = static_cast<std::uint32_t>(schedule.communicators.size() - 1);
      const Tensor& x = schedule.tensors[schedule.find_tensor("x").value()];  // [R, hidden]
      context_.partials =
          add_tensor(schedule, "tp.partials", schedule.compute_dtype, BufferKind::workspace, context_.n, x.elements());
    }
    if (std::any_of(all.begin(), all.end(), [](const TpGemm* gemm) { return is_split(*gemm); }))
      for (std::int64_t i = 1; i < compute_lanes; ++i)
        context_.compute.push_back(add_lane("compute." + std::to_string(i), LaneKind::compute, 0));
  }

  void run() {
    for (const BlockId id : lowered_.layer_blocks) {
      BlockEditor block(lowered_.schedule, id, context_.lanes(), lowered_.layers);
      for (const char* again : {"", ".recompute"}) {
        gather(block, "qkv", ".all_gather", ".fprop", again, methods_.qkv_fprop, false);
        scatter(block, "proj", ".fprop", ".reduce_scatter", again, methods_.proj_fprop);
        gather(block, "fc1", ".all_gather", ".fprop", again, methods_.fc1_fprop, false);
        scatter(block, "fc2", ".fprop", ".reduce_scatter", again, methods_.fc2_fprop);
      }
      gather(block, "fc2", ".all_gather_dgrad", ".dgrad", "", methods_.fc2_dgrad, true);
      gather(block, "proj", ".all_gather_dgrad", ".dgrad", "", methods_.proj_dgrad, true);
      column_backward(block, "fc1", methods_.fc1_dgrad, methods_.fc1_wgrad);
      column_backward(block, "qkv", methods_.qkv_dgrad, methods_.qkv_wgrad);
      block.commit();
    }
    // TransformerEngine leaves the head alone; Megatron-LM's own linear layer has both bulk overlaps.
    for (const BlockId id : lowered_.end_blocks) {
      BlockEditor block(lowered_.schedule, id, context_.lanes(), 1);
      column_backward(block, "lm_head", methods_.qkv_dgrad, methods_.qkv_wgrad);
      block.commit();
    }
  }

 private:
  LaneId add_lane(const std::string& name, LaneKind kind, int priority) {
    lowered_.schedule.lanes.push_back({name, kind, priority});
    return static_cast<LaneId>(lowered_.schedule.lanes.size() - 1);
  }

  void gather(BlockEditor& block, const std::string& layer, const std::string& gather, const std::string& gemm,
              const std::string& again, const TpGemm& how, bool keeps_whole) {
    if (how.method != TpMethod::ring_exchange || !block.has(layer + gather + again)) return;
    if (how.aggregate)
      split_gather_aggregate(block, context_, layer + gather + again, layer + gemm + again);
    else
      split_gather(block, context_, layer + gather + again, layer + gemm + again, keeps_whole);
  }
  void scatter(BlockEditor& block, const std::string& layer, const std::string& gemm, const std::string& scatter,
               const std::string& again, const TpGemm& how) {
    if (!block.has(layer + scatter + again)) return;
    if (how.method == TpMethod::ring_exchange)
      split_scatter(block, context_, layer + gemm + again, layer + scatter + again);
    if (how.method == TpMethod::pipeline)
      pipeline_scatter(block, context_, layer + gemm + again, layer + scatter + again, how.num_splits);
  }
  // Bulk dgrad: the gathered input is needed by wgrad only, so that it may come beside dgrad. Exposed: max(0, T_AG −
  // T_dgrad). Bulk wgrad: the sum of the dgrad is needed behind wgrad only. Exposed: max(0, T_RS − T_wgrad).
  void column_backward(BlockEditor& block, const std::string& layer, const TpGemm& dgrad, const TpGemm& wgrad) {
    if (!block.has(layer + ".all_gather_wgrad")) return;
    if (dgrad.method == TpMethod::bulk) block.set_free(layer + ".all_gather_wgrad");
    if (is_split(dgrad) && layer != "lm_head")
      scatter(block, layer, ".dgrad", ".dgrad.reduce_scatter", "", dgrad);
    else if (wgrad.method == TpMethod::bulk &&
             block.has(layer + ".dgrad.reduce_scatter"))  // not where wgrad is put off
      block.set_free(layer + ".dgrad.reduce_scatter");
  }

  Lowered& lowered_;
  const TpMethods& methods_;
  SplitContext context_;
};

}  // namespace

void rewrite_tp_comm_overlap(Lowered& lowered, const TpMethods& methods, std::int64_t compute_lanes) {
  TpOverlap(lowered, methods, compute_lanes).run();
}

// Without sequence parallelism: the all-reduce of the dgrad beside the wgrad. Exposed: max(0, T_AR − T_wgrad).
void rewrite_async_allreduce(Lowered& lowered) {
  std::vector<BlockId> blocks = lowered.end_blocks;
  blocks.push_back(lowered.layer_blocks.back());
  for (const BlockId id : blocks) {
    const bool is_layer = id == lowered.layer_blocks.back();
    BlockEditor block(lowered.schedule, id, {lowered.compute, lowered.tp_lane}, is_layer ? lowered.layers : 1);
    for (const char* layer : {"fc1", "qkv", "lm_head"})
      if (const std::string name = std::string(layer) + ".dgrad.all_reduce"; block.has(name)) block.set_free(name);
    block.commit();
  }
}

}  // namespace stretto
