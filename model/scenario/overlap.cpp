#include <string>
#include <utility>
#include <vector>

#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

// NeMo names the type, Megatron-LM has a switch for the same.
bool read_grad_reduce_in_fp32(TomlTable& table) {
  const bool is_fp32 = value_or<bool>(table, "grad_reduce_in_fp32", true);
  if (!table.has("grad_sync_dtype")) return is_fp32;
  if (table.has("grad_reduce_in_fp32"))
    throw table.failure("grad_sync_dtype",
                        "expected only one of grad_reduce_in_fp32 and grad_sync_dtype (the same setting), got both");
  return choice_or(table, "grad_sync_dtype", "fp32", {"fp32", "bf16"}) == "fp32";
}

// What a GEMM of a layer can do: Megatron-Bridge's TransformerLayerTPOverlapCfg.
struct TpSlot {
  const char* name;
  std::vector<std::string> methods;
};
const std::vector<TpSlot>& tp_slots() {
  static const std::vector<TpSlot> kSlots = {
      {"qkv_fprop", {"none", "ring_exchange"}},
      {"qkv_dgrad", {"none", "bulk", "ring_exchange", "pipeline"}},
      {"qkv_wgrad", {"none", "bulk"}},
      {"proj_fprop", {"none", "ring_exchange", "pipeline"}},
      {"proj_dgrad", {"none", "ring_exchange"}},
      {"fc1_fprop", {"none", "ring_exchange"}},
      {"fc1_dgrad", {"none", "bulk", "ring_exchange", "pipeline"}},
      {"fc1_wgrad", {"none", "bulk"}},
      {"fc2_fprop", {"none", "ring_exchange", "pipeline"}},
      {"fc2_dgrad", {"none", "ring_exchange"}},
  };
  return kSlots;
}

TpGemm read_tp_gemm(TomlTable table, const TpSlot& slot) {
  TpGemm gemm;
  const std::string method = choice_or(table, "method", "none", slot.methods);
  gemm.method = method == "bulk"            ? TpMethod::bulk
                : method == "ring_exchange" ? TpMethod::ring_exchange
                : method == "pipeline"      ? TpMethod::pipeline
                                            : TpMethod::none;
  gemm.aggregate = value_or<bool>(table, "aggregate", false);
  gemm.num_splits = value_or<std::int64_t>(table, "num_splits", gemm.num_splits, {.min = 2, .max = 64});
  table.finish();
  const bool gathers = slot.methods.size() == 2 && slot.methods[1] == "ring_exchange";
  if (gemm.aggregate && !(gathers && gemm.method == TpMethod::ring_exchange))
    throw table.failure("aggregate",
                        "expected method = \"ring_exchange\" of qkv_fprop, fc1_fprop, proj_dgrad or fc2_dgrad as well, "
                        "got method = \"" +
                            method + "\" of " + slot.name);
  if (table.has("num_splits") && gemm.method != TpMethod::pipeline)
    throw table.failure("num_splits", "expected method = \"pipeline\" as well, got \"" + method + "\"");
  return gemm;
}

std::map<std::string, TpGemm> read_tp_cfg(TomlTable table) {
  std::map<std::string, TpGemm> cfg;
  for (const TpSlot& slot : tp_slots())
    if (TomlTable gemm = table.section(slot.name); gemm.present()) cfg[slot.name] = read_tp_gemm(std::move(gemm), slot);
  table.finish();
  for (const char* layer : {"qkv", "fc1"}) {
    const auto dgrad = cfg.find(std::string(layer) + "_dgrad"), wgrad = cfg.find(std::string(layer) + "_wgrad");
    if (dgrad == cfg.end() || wgrad == cfg.end() || wgrad->second.method != TpMethod::bulk) continue;
    if (dgrad->second.method == TpMethod::ring_exchange || dgrad->second.method == TpMethod::pipeline)
      throw table.failure(wgrad->first,
                          "expected none beside a " + dgrad->first + " that scatters its own result, got bulk");
  }
  return cfg;
}

}  // namespace

Overlap read_overlap(TomlTable table) {
  Overlap overlap;
  overlap.overlap_grad_reduce = value_or<bool>(table, "overlap_grad_reduce", overlap.overlap_grad_reduce);
  overlap.overlap_param_gather = value_or<bool>(table, "overlap_param_gather", overlap.overlap_param_gather);
  overlap.align_param_gather = value_or<bool>(table, "align_param_gather", overlap.align_param_gather);
  const bool fp8_param_gather = value_or<bool>(table, "fp8_param_gather", false);
  overlap.bucket_size =
      value_or<std::int64_t>(table, "bucket_size", overlap.bucket_size, {.min = 1, .max = std::int64_t{1} << 40});
  overlap.grad_reduce_in_fp32 = read_grad_reduce_in_fp32(table);
  overlap.async_tensor_model_parallel_allreduce = value_or<bool>(table, "async_tensor_model_parallel_allreduce", false);
  overlap.tp_comm_overlap = value_or<bool>(table, "tp_comm_overlap", overlap.tp_comm_overlap);
  overlap.tp_comm_bulk_dgrad = value_or<bool>(table, "tp_comm_bulk_dgrad", overlap.tp_comm_bulk_dgrad);
  overlap.tp_comm_bulk_wgrad = value_or<bool>(table, "tp_comm_bulk_wgrad", overlap.tp_comm_bulk_wgrad);
  overlap.tp_comm_overlap_ag = value_or<bool>(table, "tp_comm_overlap_ag", true);
  overlap.tp_comm_overlap_rs = value_or<bool>(table, "tp_comm_overlap_rs", true);
  overlap.tp_comm_overlap_rs_dgrad = value_or<bool>(table, "tp_comm_overlap_rs_dgrad", false);
  overlap.tp_comm_overlap_disable_qkv = value_or<bool>(table, "tp_comm_overlap_disable_qkv", false);
  overlap.tp_comm_overlap_disable_fc1 = value_or<bool>(table, "tp_comm_overlap_disable_fc1", false);
  overlap.tp_comm_overlap_compute_lanes =
      value_or<std::int64_t>(table, "tp_comm_overlap_compute_lanes", 1, {.min = 1, .max = 8});
  overlap.tp_comm_overlap_cfg = read_tp_cfg(table.section("tp_comm_overlap_cfg"));
  for (const auto& [layer, is_off] : {std::pair{std::string("qkv"), overlap.tp_comm_overlap_disable_qkv},
                                      std::pair{std::string("fc1"), overlap.tp_comm_overlap_disable_fc1}})
    for (const auto& [gemm, how] : overlap.tp_comm_overlap_cfg)
      if (is_off && gemm.starts_with(layer) && how.method != TpMethod::none)
        throw table.failure("tp_comm_overlap_disable_" + layer,
                            "expected only one of it and a method of " + gemm + " in tp_comm_overlap_cfg, got both");
  const auto p2p = table.find<bool>("overlap_p2p_comm"), batch = table.find<bool>("batch_p2p_comm");
  overlap.overlap_p2p_comm = p2p.value_or(false);
  // Kept as it is for messages beside compute too, which it does not act on: modes without them are compared.
  overlap.batch_p2p_comm = batch.value_or(true);
  overlap.overlap_p2p_comm_warmup_flush = value_or<bool>(table, "overlap_p2p_comm_warmup_flush", false);
  overlap.defer_embedding_wgrad_compute = value_or<bool>(table, "defer_embedding_wgrad_compute", false);
  overlap.wgrad_deferral_limit =
      value_or<std::int64_t>(table, "wgrad_deferral_limit", 0, {.min = 0, .max = kMaxGlobalBatch});
  table.finish();
  if (overlap.wgrad_deferral_limit > 0 && !overlap.defer_embedding_wgrad_compute)
    throw table.failure("wgrad_deferral_limit", "expected defer_embedding_wgrad_compute = true as well, got false");
  if (overlap.overlap_p2p_comm && batch.value_or(false))
    throw table.failure("batch_p2p_comm", "expected only one of it and overlap_p2p_comm, got both");
  if (overlap.overlap_p2p_comm_warmup_flush && !overlap.overlap_p2p_comm)
    throw table.failure("overlap_p2p_comm_warmup_flush", "expected overlap_p2p_comm = true as well, got false");
  if (overlap.overlap_param_gather && !overlap.overlap_grad_reduce)
    throw table.failure("overlap_param_gather",
                        "expected overlap_grad_reduce = true as well, got false: "
                        "overlap_param_gather needs overlap_grad_reduce");
  if (fp8_param_gather)
    throw table.failure("fp8_param_gather", "expected parameters in fp8, which no precision has yet, got true");
  return overlap;
}

}  // namespace stretto
