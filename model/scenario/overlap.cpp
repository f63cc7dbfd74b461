#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

// A switch that Megatron-LM and NeMo name differently.
bool switch_or(TomlTable& table, const std::string& megatron, const std::string& nemo, bool fallback) {
  const auto first = table.find<bool>(megatron), second = table.find<bool>(nemo);
  if (first && second)
    throw table.failure(nemo, "expected only one of " + megatron + " and " + nemo + " (the same switch), got both");
  return first ? *first : second.value_or(fallback);
}

}  // namespace

Overlap read_overlap(TomlTable table) {
  Overlap overlap;
  overlap.overlap_grad_reduce =
      switch_or(table, "overlap_grad_reduce", "overlap_grad_sync", overlap.overlap_grad_reduce);
  overlap.overlap_param_gather =
      switch_or(table, "overlap_param_gather", "overlap_param_sync", overlap.overlap_param_gather);
  overlap.bucket_size =
      value_or<std::int64_t>(table, "bucket_size", overlap.bucket_size, {.min = 1, .max = std::int64_t{1} << 40});
  overlap.grad_reduce_in_fp32 = value_or<bool>(table, "grad_reduce_in_fp32", overlap.grad_reduce_in_fp32);
  overlap.async_tensor_model_parallel_allreduce = value_or<bool>(table, "async_tensor_model_parallel_allreduce", false);
  overlap.tp_comm_overlap = switch_or(table, "tp_comm_overlap", "ub_tp_comm_overlap", overlap.tp_comm_overlap);
  overlap.tp_comm_bulk_dgrad = value_or<bool>(table, "tp_comm_bulk_dgrad", overlap.tp_comm_bulk_dgrad);
  overlap.tp_comm_bulk_wgrad = value_or<bool>(table, "tp_comm_bulk_wgrad", overlap.tp_comm_bulk_wgrad);
  const auto p2p = table.find<bool>("overlap_p2p_comm"), batch = table.find<bool>("batch_p2p_comm");
  overlap.overlap_p2p_comm = p2p.value_or(false);
  overlap.batch_p2p_comm = batch.value_or(!overlap.overlap_p2p_comm);
  overlap.overlap_p2p_comm_warmup_flush = value_or<bool>(table, "overlap_p2p_comm_warmup_flush", false);
  table.finish();
  if (overlap.overlap_p2p_comm && overlap.batch_p2p_comm)
    throw table.failure("batch_p2p_comm", "expected only one of it and overlap_p2p_comm, got both");
  if (overlap.overlap_p2p_comm_warmup_flush && !overlap.overlap_p2p_comm)
    throw table.failure("overlap_p2p_comm_warmup_flush", "expected overlap_p2p_comm = true as well, got false");
  if (overlap.overlap_param_gather && !overlap.overlap_grad_reduce)
    throw table.failure(table.has("overlap_param_sync") ? "overlap_param_sync" : "overlap_param_gather",
                        "expected overlap_grad_reduce = true as well, got false: overlap_param_gather needs "
                        "overlap_grad_reduce");
  return overlap;
}

}  // namespace stretto
