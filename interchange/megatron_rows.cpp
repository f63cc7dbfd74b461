#include <algorithm>

#include "interchange/megatron.hpp"
#include "model/scenario/keys.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// Returns null for a number of 0, which stands for an absent key.
Json unless_0(std::int64_t value) { return value == 0 ? Json() : Json(value); }
// Returns a multiple that pads the vocabulary to the scenario's size.
std::int64_t vocabulary_multiple(const Scenario& s) {
  const std::int64_t tp = s.parallel.tensor_model_parallel_size, padded = s.model.padded_vocab_size;
  for (const std::int64_t multiple : {std::int64_t{1}, std::int64_t{128}})
    if ((s.model.vocab_size + multiple * tp - 1) / (multiple * tp) * (multiple * tp) == padded) return multiple;
  return padded / tp;
}

bool has_virtual_stages(const Scenario& s) { return s.parallel.virtual_pipeline_model_parallel_size > 1; }
// Megatron-LM's assertions on a switch are part of its row: where they do not hold, the switch is off here too.
bool overlaps_gathers(const Scenario& s) {  // arguments.py:1025, 1028
  return s.overlap.overlap_param_gather && s.overlap.overlap_grad_reduce && s.parallel.shards_optimizer() &&
         !s.parallel.shards_gradients();
}
bool is_full(const Scenario& s) { return s.training.recompute.granularity == Recompute::Granularity::full; }

using S = const Scenario&;

// Keys whose flag says something other than the key's value.
struct Special {
  const char* key;
  KeyValue (*get)(S);
};
// Returns a pattern of layers as a number, or as the text of a list.
Json layers_of(const std::vector<std::int64_t>& pattern) {
  if (pattern.empty()) return {};
  return pattern.size() == 1 ? Json(pattern.front()) : Json(Json(pattern).dump());
}

constexpr Special kSpecial[] = {
    {"model.make_vocab_size_divisible_by", [](S s) -> Json { return vocabulary_multiple(s); }},
    {"model.num_query_groups",
     [](S s) -> Json { return s.model.kv_heads() == s.model.num_attention_heads ? Json() : Json(s.model.kv_heads()); }},
    {"model.q_lora_rank", [](S s) -> Json { return unless_0(s.model.latent.q_lora_rank); }},
    {"model.moe_layer_freq",
     [](S s) -> Json {
       const std::vector<std::int64_t>& freq = s.model.experts.moe_layer_freq;
       return !s.model.experts.any() || freq == std::vector<std::int64_t>{1} ? Json() : layers_of(freq);
     }},
    {"model.linear_attention_freq", [](S s) -> Json { return layers_of(s.model.gated_delta.linear_attention_freq); }},
    // Megatron-LM counts the keys before a query's own, and those after it, none of which causal attention sees.
    {"model.sliding_window",
     [](S s) -> Json {
       return s.model.sliding_window == 0 ? Json() : Json(std::to_string(s.model.sliding_window - 1) + ",0");
     }},
    {"model.window_attn_skip_freq",
     [](S s) -> Json {  // Megatron-LM has no chunks
       return s.model.sliding_window == 0 ? Json() : layers_of(s.model.window_attn_skip_freq);
     }},
    {"model.no_rope_freq", [](S s) -> Json { return layers_of(s.model.no_rope_freq); }},
    {"model.hybrid_layer_pattern",
     [](S s) -> Json {
       return s.model.mamba.hybrid_layer_pattern.empty() ? Json() : Json(s.model.mamba.hybrid_layer_pattern);
     }},
    {"model.moe_shared_expert_intermediate_size",
     [](S s) -> Json { return unless_0(s.model.experts.moe_shared_expert_intermediate_size); }},
    {"model.moe_z_loss_coeff",
     [](S s) -> Json {
       return s.model.experts.moe_z_loss_coeff == 0 ? Json() : Json(s.model.experts.moe_z_loss_coeff);
     }},
    {"parallel.moe_expert_rank_capacity_factor",
     [](S s) -> Json {
       const double factor = s.parallel.moe_expert_rank_capacity_factor;
       return factor == 0 ? Json() : Json(factor);
     }},
    {"parallel.sequence_parallel",
     [](S s) -> Json { return s.parallel.sequence_parallel && s.parallel.tensor_model_parallel_size > 1; }},
    {"parallel.cp_comm_type",
     [](S s) -> Json {
       if (s.parallel.context_parallel_size == 1) return {};
       if (s.parallel.cp_comm_types().size() == 1) return name_of(s.parallel.cp_comm_type.front());
       Json types = Json::array();
       for (const CpCommType type : s.parallel.cp_comm_type) types.push_back(name_of(type));
       return types;
     }},
    {"parallel.hierarchical_context_parallel_sizes",
     [](S s) -> Json {
       return s.parallel.hierarchical_context_parallel_sizes.empty() || s.parallel.context_parallel_size == 1
                  ? Json()
                  : Json(s.parallel.hierarchical_context_parallel_sizes);
     }},
    {"parallel.use_distributed_optimizer", [](S s) -> Json { return s.parallel.shards_optimizer(); }},
    {"parallel.data_parallel_sharding_strategy",
     [](S s) -> Json {
       return s.parallel.shards_gradients() ? Json(name_of(s.parallel.data_parallel_sharding_strategy)) : Json();
     }},
    {"parallel.num_distributed_optimizer_instances",
     [](S s) -> Json {
       return s.parallel.num_distributed_optimizer_instances > 1 ? Json(s.parallel.num_distributed_optimizer_instances)
                                                                 : Json();
     }},
    {"parallel.virtual_pipeline_model_parallel_size",
     [](S s) -> Json {
       // A layout already says how many virtual stages there are.
       return has_virtual_stages(s) && s.parallel.pipeline_model_parallel_layout.empty()
                  ? Json(s.parallel.virtual_pipeline_model_parallel_size)
                  : Json();
     }},
    {"parallel.microbatch_group_size_per_vp_stage",
     [](S s) -> Json {
       return has_virtual_stages(s) ? unless_0(s.parallel.microbatch_group_size_per_vp_stage) : Json();
     }},
    {"parallel.num_layers_in_first_pipeline_stage",
     [](S s) -> Json { return unless_0(s.parallel.num_layers_in_first_pipeline_stage); }},
    {"parallel.num_layers_in_last_pipeline_stage",
     [](S s) -> Json { return unless_0(s.parallel.num_layers_in_last_pipeline_stage); }},
    {"parallel.pipeline_model_parallel_layout",
     [](S s) -> Json {
       return s.parallel.pipeline_model_parallel_layout.empty() ? Json()
                                                                : Json(s.parallel.pipeline_model_parallel_layout);
     }},
    {"overlap.overlap_grad_reduce",
     [](S s) -> Json { return s.overlap.overlap_grad_reduce && !s.parallel.shards_gradients(); }},
    {"overlap.align_grad_reduce",
     [](S s) -> Json {
       // Megatron-LM reads it only with stages and buckets (schedules.py:1445, 2433).
       return s.parallel.pipeline_model_parallel_size > 1 && s.overlap.overlap_grad_reduce &&
                      !s.parallel.shards_gradients()
                  ? Json(s.overlap.align_grad_reduce)
                  : Json();
     }},
    {"overlap.overlap_param_gather", [](S s) -> Json { return overlaps_gathers(s); }},
    {"overlap.align_param_gather",
     [](S s) -> Json {
       // Without virtual stages Megatron-LM switches it off (arguments.py:1012).
       return has_virtual_stages(s) && !s.parallel.shards_gradients() ? Json(s.overlap.align_param_gather) : Json();
     }},
    {"overlap.overlap_param_gather_with_optimizer_step",
     [](S s) -> Json {
       return s.overlap.overlap_param_gather_with_optimizer_step && overlaps_gathers(s) && has_virtual_stages(s);
     }},
    {"overlap.bucket_size", [](S s) -> Json { return unless_0(s.overlap.bucket_size); }},
    {"overlap.tp_comm_overlap",
     [](S s) -> Json {
       return s.overlap.tp_comm_overlap && s.parallel.sequence_parallel && s.parallel.tensor_model_parallel_size > 1;
     }},
    {"overlap.tp_comm_overlap_cfg", [](S s) -> Json { return s.overlap.tp_comm_overlap_cfg.size(); }},
    {"overlap.cp_comm_overlap",
     [](S s) -> Json {
       return s.overlap.cp_comm_overlap == s.parallel.has_cp_ring()
                  ? Json(false)
                  : Json(s.overlap.cp_comm_overlap ? "true" : "false");
     }},
    {"overlap.fsdp_comm_overlap",
     [](S s) -> Json {
       // Megatron-FSDP always overlaps where it shards gradients.
       return s.overlap.fsdp_comm_overlap == s.parallel.shards_gradients()
                  ? Json(false)
                  : Json(s.overlap.fsdp_comm_overlap ? "true" : "false");
     }},
    {"overlap.overlap_p2p_comm",
     [](S s) -> Json { return has_virtual_stages(s) ? Json(s.overlap.overlap_p2p_comm) : Json(); }},
    {"overlap.overlap_p2p_comm_warmup_flush",
     [](S s) -> Json { return has_virtual_stages(s) && s.overlap.overlap_p2p_comm_warmup_flush; }},
    {"overlap.defer_embedding_wgrad_compute",
     [](S s) -> Json {
       return s.overlap.defer_embedding_wgrad_compute && s.parallel.pipeline_model_parallel_size > 1;
     }},
    {"overlap.wgrad_deferral_limit", [](S s) -> Json { return unless_0(s.overlap.wgrad_deferral_limit); }},
    {"training.attention_backend",
     [](S s) -> Json {
       if (s.training.attention_backend != AttentionBackend::fused) return "unfused";
       return s.framework.attention_kernel.starts_with("flash") ? "flash" : "fused";
     }},
    {"training.recompute_granularity",
     [](S s) -> Json {
       const bool selects = s.training.recompute.granularity == Recompute::Granularity::selective;
       return is_full(s) ? Json("full") : selects ? Json("selective") : Json();
     }},
    {"training.recompute_method",
     [](S s) -> Json {
       return is_full(s) ? Json(s.training.recompute.method == Recompute::Method::block ? "block" : "uniform") : Json();
     }},
    {"training.recompute_num_layers",
     [](S s) -> Json { return is_full(s) ? Json(s.training.recompute.num_layers) : Json(); }},
    {"training.recompute_modules",
     [](S s) -> Json {
       const Recompute& recompute = s.training.recompute;
       if (recompute.granularity != Recompute::Granularity::selective || recompute.modules == Recompute{}.modules)
         return {};
       Json modules = Json::array();
       for (const auto module : recompute.modules) modules.push_back(name_of(module));
       return modules;
     }},
    {"training.lr_decay_iters", [](S s) -> Json { return unless_0(s.training.lr_decay_iters); }},
};

MegatronRow row_of(const ScenarioKey& key) {
  const MegatronFlag& flag = key.megatron;
  MegatronRow row{.key = key.full_name(),
                  .flag = flag.name,
                  .get = [&key](S s) { return acting_value_of(key, s); },
                  .given = flag.given,
                  .absent = flag.absent,
                  .with = flag.with,
                  .words = {flag.words.begin(), flag.words.end()},
                  .is_switch = value_of(key, {}).is_boolean(),
                  .in_bridge = key.in_bridge,
                  .is_list = flag.is_list,
                  .may_be_one = flag.may_be_one,
                  .aliases = {flag.aliases.begin(), flag.aliases.end()},
                  .spellings = {key.also.begin(), key.also.end()}};
  for (const Special& special : kSpecial)
    if (row.key == special.key) row.get = special.get;
  return row;
}

std::vector<MegatronRow> others() {
  return {
      // CUDA_DEVICE_MAX_CONNECTIONS of the environment. Megatron-LM asserts 1 with tensor or context parallelism before
      // Blackwell, except with FSDP (arguments.py:1477).
      {.key = "cluster.cuda_device_max_connections",
       .flag = "",
       .get = [](S s) -> Json {
         // With FSDP Megatron-LM asserts that it is not 1 (arguments.py:1166), so 1 is not written.
         if (s.parallel.shards_gradients() && s.cluster.cuda_device_max_connections == 1) return {};
         if (s.cluster.cuda_device_max_connections > 0) return s.cluster.cuda_device_max_connections;
         const bool asserts = s.parallel.tensor_model_parallel_size > 1 || s.parallel.context_parallel_size > 1;
         return asserts && !s.parallel.shards_gradients() ? Json(1) : Json();
       }},
      {.key = "cluster.nccl_ub",
       .flag = "--use-nccl-ub",
       .get = [](S s) -> Json { return s.cluster.nccl_ub; },
       .given = true,
       .absent = false},
  };
}

// Keys that come earlier on a command line than among the keys: before the second one.
constexpr std::pair<const char*, const char*> kBefore[] = {
    {"model.ffn_hidden_size", "model.num_attention_heads"},
    {"model.num_query_groups", "model.add_bias_linear"},
    {"cluster.cuda_device_max_connections", "overlap.overlap_grad_reduce"},
    {"cluster.nccl_ub", "overlap.overlap_grad_reduce"},
};

}  // namespace

const std::vector<MegatronRow>& megatron_rows() {
  static const std::vector<MegatronRow> rows = [] {
    std::vector<MegatronRow> made;
    for (const char* section : kSectionsOfKeys)
      for (const ScenarioKey& key : scenario_keys_of(section))
        if (key.says_how) made.push_back(row_of(key));
    for (MegatronRow& row : others()) made.push_back(std::move(row));
    const auto at = [&](const char* name) {
      return std::find_if(made.begin(), made.end(), [&](const MegatronRow& row) { return row.key == name; });
    };
    for (const auto& [key, next] : kBefore) {
      const auto from = at(key), to = at(next);
      if (from < to)
        std::rotate(from, from + 1, to);
      else
        std::rotate(to, from, from + 1);
    }
    return made;
  }();
  return rows;
}

}  // namespace stretto
