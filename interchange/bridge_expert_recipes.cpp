#include <algorithm>

#include "interchange/bridge_recipes.hpp"

namespace stretto {
namespace with_experts {

using Json = nlohmann::json;

enum Trait : unsigned {
  kSequence = 1,   // sequence_parallel
  kOverlaps = 2,   // ddp: overlap_grad_reduce
  kBf16 = 4,       // mixed_precision: grad_reduce_in_fp32 False
  kFull = 8,       // every layer is recomputed
  kDeepEp = 16,    // apply_flex_dispatcher_backend, which also sets the dispatcher
  kHybridEp = 32,  // the same
  kPairs = 64,     // overlap_moe_expert_parallel_comm
  kDelayed = 128,  // delay_wgrad_compute
  kMtp = 256,      // mtp_num_layers 1
  kAware = 512,    // the precision-aware optimizer, moments in bf16
};

// The library's recipes of pretraining in bf16 (src/megatron/bridge/recipes at 067f987d); those of performance are in
// perf_recipes.hpp. All have expert_tensor_parallel_size 1.
struct Row {
  const char* name;    // without numbers of GPUs, "h100", "bf16" and "_config"
  const char* preset;  // of the model
  int gpus, seq_length, tp, pp, vp, cp, ep, global_batch_size, micro_batch_size;
  unsigned traits;
  const char* layout;             // of stages; "": even
  const char* recompute_modules;  // with blanks between them; "": none
};
constexpr Row kRows[] = {
    {"deepseek_v2_lite_pretrain", "deepseek-v2-lite", 8, 4096, 1, 1, 1, 1, 8, 512, 1, kOverlaps | kFull | kDeepEp, "",
     ""},
    {"deepseek_v3_pretrain_32nodes", "deepseek-v3", 256, 4096, 2, 8, 1, 1, 32, 4096, 1,
     kSequence | kOverlaps | kBf16 | kFull | kHybridEp | kMtp | kAware, "Et*8|(t*8|)*6t*5mL", ""},
    {"moonlight_16b_pretrain", "moonlight-16b-a3b", 8, 4096, 2, 1, 1, 1, 8, 2048, 1,
     kSequence | kOverlaps | kBf16 | kDeepEp | kAware, "", "core_attn"},
    {"moonlight_16b_pretrain", "moonlight-16b-a3b", 16, 4096, 1, 1, 1, 1, 8, 1024, 2,
     kOverlaps | kBf16 | kHybridEp | kPairs | kDelayed | kAware, "", ""},
    {"qwen3_30b_a3b_pretrain", "qwen3-30b-a3b", 8, 4096, 4, 2, 1, 1, 4, 32, 2, kSequence | kOverlaps | kFull | kDeepEp,
     "", ""},
};

Json words_of(std::string_view text) {
  Json words = Json::array();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(std::string(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

Json settings_of(const Row& row) {
  const auto has = [&](Trait trait) { return (row.traits & trait) != 0; };
  Json model = {{"seq_length", row.seq_length},
                {"tensor_model_parallel_size", row.tp},
                {"pipeline_model_parallel_size", row.pp},
                {"virtual_pipeline_model_parallel_size", row.vp},
                {"context_parallel_size", row.cp},
                {"expert_model_parallel_size", row.ep},
                {"expert_tensor_parallel_size", 1},
                {"sequence_parallel", has(kSequence)},
                {"moe_token_dispatcher_type", has(kDeepEp) || has(kHybridEp) ? "flex" : "alltoall"},
                {"make_vocab_size_divisible_by", 128}};
  if (has(kDeepEp) || has(kHybridEp)) model["moe_flex_dispatcher_backend"] = has(kDeepEp) ? "deepep" : "hybridep";
  if (has(kFull)) {
    model["recompute_granularity"] = "full";
    model["recompute_method"] = "uniform";
    model["recompute_num_layers"] = 1;
  } else if (row.recompute_modules[0] != '\0') {
    model["recompute_granularity"] = "selective";
    model["recompute_modules"] = words_of(row.recompute_modules);
  }
  if (has(kMtp)) model["mtp_num_layers"] = 1;
  if (row.layout[0] != '\0') model["pipeline_model_parallel_layout"] = row.layout;
  Json settings = {
      {"model", std::move(model)},
      {"train", {{"global_batch_size", row.global_batch_size}, {"micro_batch_size", row.micro_batch_size}}},
      {"ddp", {{"overlap_grad_reduce", has(kOverlaps)}, {"overlap_param_gather", has(kOverlaps)}}},
      {"mixed_precision", {{"bf16", true}, {"grad_reduce_in_fp32", !has(kBf16)}}}};
  if (has(kAware))
    settings["optimizer"] = {
        {"use_precision_aware_optimizer", true}, {"exp_avg_dtype", "bf16"}, {"exp_avg_sq_dtype", "bf16"}};
  if (has(kPairs)) settings["comm_overlap"] = {{"overlap_moe_expert_parallel_comm", true}};
  if (has(kDelayed)) settings["comm_overlap"]["delay_wgrad_compute"] = true;
  if (has(kPairs)) settings["comm_overlap"]["overlap_grad_reduce"] = has(kOverlaps);
  return settings;
}

}  // namespace with_experts

std::vector<BridgeRecipe> recipes_with_experts() {
  std::vector<BridgeRecipe> recipes;
  for (const with_experts::Row& row : with_experts::kRows)
    recipes.push_back({row.name, row.gpus, with_experts::settings_of(row), row.preset});
  return recipes;
}

}  // namespace stretto
