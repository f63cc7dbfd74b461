#include "model/scenario/not_modelled.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_set>

#include "model/scenario/keys.hpp"

namespace stretto {
namespace {

struct Names {
  const char* why;
  // Names with blanks between them; "*" at the end of a name stands for any ending.
  std::string_view names;
};

// Keys that Stretto has are skipped below. Names are those of
// Megatron-LM d98e8a64
// (megatron/training/arguments.py, megatron/core/transformer/transformer_config.py), whose keys NeMo and
// Megatron-Bridge have too; of torchtitan (config/job_config.py); and of Hugging Face's configurations of Mixtral,
// Qwen-MoE, DeepSeek, DBRX, OLMoE, Granite-MoE, gpt-oss and Llama 4. Precisions are those of Megatron-Bridge's recipes.
constexpr Names kNotModelled[] = {
    {"expert parallelism is expert_model_parallel_size here", "expert_parallel_*"},
    {"this transport of experts' rows is not modelled yet", "moe_flex_dispatcher_* moe_enable_deepep"},
    {"a capacity of experts that drops tokens is not modelled yet", "moe_token_drop_*"},
    {"this of experts is not modelled yet",
     "num_experts num_experts_per_* num_local_experts num_shared_experts n_routed_experts n_shared_experts "
     "experts_per_token moe moe_* shared_expert_* router_aux_loss_coef router_jitter_noise first_k_dense_replace "
     "norm_topk_prob decoder_sparse_step topk_group topk_method"},
    {"linear attention by gated delta rules, in three of four layers, is not modelled yet", "qwen3_next"},
    {"experts of this family are not modelled yet", "qwen2_moe dbrx olmoe granitemoe* llama4* phimoe glm4_moe"},
    {"this fp8 compute is not modelled yet",
     "fp8_interval fp8_quantizer_factory fp8_output_proj fp8_param keep_fp8_weight_transpose_cache fp8_e4m3 "
     "fp8_hybrid float8* enable_fp8*"},
    {"attention in fp8 is not modelled yet", "fp8_multi_head_attention"},
    {"this fp4 compute is not modelled yet", "fp4_* mxfp4*"},
    {"multi-latent attention of this family is not modelled yet", "qk_nope_head_dim qk_rope_head_dim"},
    {"multi-token prediction is not modelled yet", "mtp_* num_nextn_predict_layers"},
};

bool holds(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    const std::string_view one = names.substr(0, end);
    if (one.ends_with('*') ? name.starts_with(one.substr(0, end - 1)) : name == one) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

// Names of all keys that Stretto has. A search reads thousands of scenarios a second.
const std::unordered_set<std::string>& names_of_keys() {
  static const std::unordered_set<std::string> names = [] {
    std::unordered_set<std::string> all;
    for (const char* section : kSectionsOfKeys)
      for (const ScenarioKey& row : scenario_keys_of(section)) all.insert(row.name);
    return all;
  }();
  return names;
}

}  // namespace

std::string not_modelled(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string key;
  for (const unsigned char letter : name) key += letter == '-' ? '_' : static_cast<char>(std::tolower(letter));
  if (names_of_keys().count(key) > 0) return "";
  for (const Names& list : kNotModelled)
    if (holds(list.names, key)) return list.why;
  return "";
}

void refuse_not_modelled(const TomlTable& table) {
  for (const std::string& key : table.keys())
    if (const std::string why = not_modelled(key); !why.empty()) throw table.failure(key, why);
}

}  // namespace stretto
