#include <algorithm>

#include "model/interchange/megatron.hpp"
#include "model/scenario/keys.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// Numbers that are 0 where nothing is asked for.
Json unless_0(std::int64_t value) { return value == 0 ? Json() : Json(value); }
// A multiple that pads the vocabulary as the scenario's did.
std::int64_t vocabulary_multiple(const Scenario& s) {
  const std::int64_t tp = s.parallel.tensor_model_parallel_size, padded = s.model.padded_vocab_size;
  for (const std::int64_t multiple : {std::int64_t{1}, std::int64_t{128}})
    if ((s.model.vocab_size + multiple * tp - 1) / (multiple * tp) * (multiple * tp) == padded) return multiple;
  return padded / tp;
}

bool has_virtual_stages(const Scenario& s) { return s.parallel.virtual_pipeline_model_parallel_size > 1; }
// What Megatron-LM asserts of a switch is a part of its row: where that does not hold, the switch does nothing here
// either.
bool gathers_beside(const Scenario& s) {  // arguments.py:1025, 1028
  return s.overlap.overlap_param_gather && s.overlap.overlap_grad_reduce && s.parallel.shards_optimizer() &&
         !s.parallel.shards_gradients();
}
bool is_full(const Scenario& s) { return s.training.recompute.granularity == Recompute::Granularity::full; }

using S = const Scenario&;

// Keys whose flag says something else than the key's value.
struct Special {
  const char* key;
  KeyValue (*get)(S);
};
constexpr Special kSpecial[] = {
    {"model.make_vocab_size_divisible_by", [](S s) -> Json { return vocabulary_multiple(s); }},
    {"model.num_query_groups",
     [](S s) -> Json { return s.model.kv_heads() == s.model.num_attention_heads ? Json() : Json(s.model.kv_heads()); }},
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
                  .in_bridge = key.in_bridge,
                  .is_list = flag.is_list,
                  .may_be_one = flag.may_be_one,
                  .aliases = {flag.aliases.begin(), flag.aliases.end()}};
  for (const Special& special : kSpecial)
    if (row.key == special.key) row.get = special.get;
  return row;
}

std::vector<MegatronRow> others() {
  return {
      {.key = "parallel.tensor_model_parallel_size",
       .flag = "--tensor-model-parallel-size",
       .get = [](S s) -> Json { return s.parallel.tensor_model_parallel_size; }},
      {.key = "parallel.pipeline_model_parallel_size",
       .flag = "--pipeline-model-parallel-size",
       .get = [](S s) -> Json { return s.parallel.pipeline_model_parallel_size; }},
      {.key = "parallel.context_parallel_size",
       .flag = "--context-parallel-size",
       .get = [](S s) -> Json { return s.parallel.context_parallel_size; }},
      {.key = "parallel.data_parallel_size",
       .flag = "",
       .get = [](S s) -> Json { return s.parallel.data_parallel_size; }},
      {.key = "parallel.sequence_parallel",
       .flag = "--sequence-parallel",
       .get = [](S s) -> Json { return s.parallel.sequence_parallel && s.parallel.tensor_model_parallel_size > 1; },
       .given = true,
       .absent = false},
      {.key = "parallel.cp_comm_type",
       .flag = "--cp-comm-type",
       .get = [](S s) -> Json {
         if (s.parallel.context_parallel_size == 1) return {};
         if (s.parallel.cp_comm_types().size() == 1) return name_of(s.parallel.cp_comm_type.front());
         Json types = Json::array();
         for (const CpCommType type : s.parallel.cp_comm_type) types.push_back(name_of(type));
         return types;
       },
       .words = {{"p2p", "p2p"},
                 {"allgather", "all_gather"},
                 {"all_gather", "all_gather"},
                 {"a2a", "a2a"},
                 {"a2a+p2p", "a2a+p2p"}},
       .is_list = true,
       .may_be_one = true},
      {.key = "parallel.hierarchical_context_parallel_sizes",
       .flag = "--hierarchical-context-parallel-sizes",
       .get = [](S s) -> Json {
         return s.parallel.hierarchical_context_parallel_sizes.empty() || s.parallel.context_parallel_size == 1
                    ? Json()
                    : Json(s.parallel.hierarchical_context_parallel_sizes);
       },
       .is_list = true},
      {.key = "parallel.use_distributed_optimizer",
       .flag = "--use-distributed-optimizer",
       .get = [](S s) -> Json { return s.parallel.shards_optimizer(); },
       .given = true,
       .absent = false},
      {.key = "parallel.data_parallel_sharding_strategy",
       .flag = "--data-parallel-sharding-strategy",
       .get = [](S s) -> Json {
         return s.parallel.shards_gradients() ? Json(name_of(s.parallel.data_parallel_sharding_strategy)) : Json();
       },
       .with = "--use-megatron-fsdp"},
      {.key = "parallel.num_distributed_optimizer_instances",
       .flag = "--num-distributed-optimizer-instances",
       .get = [](S s) -> Json {
         return s.parallel.num_distributed_optimizer_instances > 1
                    ? Json(s.parallel.num_distributed_optimizer_instances)
                    : Json();
       }},
      {.key = "parallel.reshard_after_forward",
       .flag = "",
       .get = [](S s) -> Json { return s.parallel.reshard_after_forward; }},
      {.key = "parallel.pipeline_schedule",
       .flag = "",
       .get = [](S s) -> Json { return std::string(name_of(s.parallel.pipeline_schedule)); }},
      {.key = "parallel.virtual_pipeline_model_parallel_size",
       .flag = "--num-virtual-stages-per-pipeline-rank",
       .get = [](S s) -> Json {
         // A layout says how many there are.
         return has_virtual_stages(s) && s.parallel.pipeline_model_parallel_layout.empty()
                    ? Json(s.parallel.virtual_pipeline_model_parallel_size)
                    : Json();
       }},
      {.key = "parallel.microbatch_group_size_per_vp_stage",
       .flag = "--microbatch-group-size-per-virtual-pipeline-stage",
       .get = [](S s) -> Json {
         return has_virtual_stages(s) ? unless_0(s.parallel.microbatch_group_size_per_vp_stage) : Json();
       }},
      {.key = "parallel.scatter_gather_tensors_in_pipeline",
       .flag = "",
       .get = [](S s) -> Json { return s.parallel.scatter_gather_tensors_in_pipeline; }},
      {.key = "parallel.order",
       .flag = "--use-tp-pp-dp-mapping",
       .get = [](S s) -> Json { return s.parallel.order; },
       .given = "tp-cp-ep-pp-dp",
       .absent = "tp-cp-ep-dp-pp"},
      {.key = "parallel.num_layers_in_first_pipeline_stage",
       .flag = "--decoder-first-pipeline-num-layers",
       .get = [](S s) -> Json { return unless_0(s.parallel.num_layers_in_first_pipeline_stage); }},
      {.key = "parallel.num_layers_in_last_pipeline_stage",
       .flag = "--decoder-last-pipeline-num-layers",
       .get = [](S s) -> Json { return unless_0(s.parallel.num_layers_in_last_pipeline_stage); }},
      {.key = "parallel.account_for_embedding_in_pipeline_split",
       .flag = "--account-for-embedding-in-pipeline-split",
       .get = [](S s) -> Json { return s.parallel.account_for_embedding_in_pipeline_split; },
       .given = true,
       .absent = false},
      {.key = "parallel.account_for_loss_in_pipeline_split",
       .flag = "--account-for-loss-in-pipeline-split",
       .get = [](S s) -> Json { return s.parallel.account_for_loss_in_pipeline_split; },
       .given = true,
       .absent = false},
      {.key = "parallel.pipeline_model_parallel_layout",
       .flag = "--pipeline-model-parallel-layout",
       .get = [](S s) -> Json {
         return s.parallel.pipeline_model_parallel_layout.empty() ? Json()
                                                                  : Json(s.parallel.pipeline_model_parallel_layout);
       }},
      // CUDA_DEVICE_MAX_CONNECTIONS of the environment. Megatron-LM asserts 1 with tensor or context parallelism before
      // Blackwell, FSDP aside (arguments.py:1477).
      {.key = "cluster.cuda_device_max_connections",
       .flag = "",
       .get = [](S s) -> Json {
         // With FSDP it asserts the contrary (arguments.py:1166), so 1 is not written there.
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
      {.key = "overlap.overlap_grad_reduce",
       .flag = "--overlap-grad-reduce",
       .get = [](S s) -> Json { return s.overlap.overlap_grad_reduce && !s.parallel.shards_gradients(); },
       .given = true,
       .absent = false,
       .in_bridge = true},
      {.key = "overlap.overlap_param_gather",
       .flag = "--overlap-param-gather",
       .get = [](S s) -> Json { return gathers_beside(s); },
       .given = true,
       .absent = false,
       .in_bridge = true},
      {.key = "overlap.align_param_gather",
       .flag = "--no-align-param-gather",
       .get = [](S s) -> Json {
         // Without virtual stages Megatron-LM switches it off (arguments.py:1012).
         return has_virtual_stages(s) && !s.parallel.shards_gradients() ? Json(s.overlap.align_param_gather) : Json();
       },
       .given = false,
       .absent = true,
       .in_bridge = true},
      {.key = "overlap.overlap_param_gather_with_optimizer_step",
       .flag = "--overlap-param-gather-with-optimizer-step",
       .get = [](S s) -> Json {
         return s.overlap.overlap_param_gather_with_optimizer_step && gathers_beside(s) && has_virtual_stages(s);
       },
       .given = true,
       .absent = false,
       .in_bridge = true},
      {.key = "overlap.fp8_param_gather",
       .flag = "--fp8-param-gather",
       .get = [](S s) -> Json { return s.overlap.fp8_param_gather; },
       .given = true,
       .absent = false},
      {.key = "overlap.bucket_size",
       .flag = "--ddp-bucket-size",
       .get = [](S s) -> Json { return unless_0(s.overlap.bucket_size); },
       .in_bridge = true},
      {.key = "overlap.grad_reduce_in_fp32",
       .flag = "--grad-reduce-in-bf16",
       .get = [](S s) -> Json { return s.overlap.grad_reduce_in_fp32; },
       .given = false,
       .absent = true},
      {.key = "overlap.reduce_scatter_with_fp32_accumulation",
       .flag = "--ddp-reduce-scatter-with-fp32-accumulation",
       .get = [](S s) -> Json { return s.overlap.reduce_scatter_with_fp32_accumulation; },
       .given = true,
       .absent = false},
      {.key = "overlap.async_tensor_model_parallel_allreduce",
       .flag = "--no-async-tensor-model-parallel-allreduce",
       .get = [](S s) -> Json { return s.overlap.async_tensor_model_parallel_allreduce; },
       .given = false,
       .absent = true},
      {.key = "overlap.tp_comm_overlap",
       .flag = "--tp-comm-overlap",
       .get = [](S s) -> Json {
         return s.overlap.tp_comm_overlap && s.parallel.sequence_parallel && s.parallel.tensor_model_parallel_size > 1;
       },
       .given = true,
       .absent = false,
       .in_bridge = true},
      {.key = "overlap.tp_comm_bulk_dgrad",
       .flag = "--disable-tp-comm-bulk-dgrad",
       .get = [](S s) -> Json { return s.overlap.tp_comm_bulk_dgrad; },
       .given = false,
       .absent = true,
       .aliases = {"--no-tp-comm-bulk-dgrad"}},
      {.key = "overlap.tp_comm_bulk_wgrad",
       .flag = "--disable-tp-comm-bulk-wgrad",
       .get = [](S s) -> Json { return s.overlap.tp_comm_bulk_wgrad; },
       .given = false,
       .absent = true,
       .aliases = {"--no-tp-comm-bulk-wgrad"}},
      {.key = "overlap.tp_comm_overlap_ag",
       .flag = "--disable-tp-comm-overlap-ag",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_ag; },
       .given = false,
       .absent = true,
       .aliases = {"--no-tp-comm-overlap-ag"}},
      {.key = "overlap.tp_comm_overlap_rs",
       .flag = "--disable-tp-comm-overlap-rs",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_rs; },
       .given = false,
       .absent = true,
       .aliases = {"--no-tp-comm-overlap-rs"}},
      {.key = "overlap.tp_comm_overlap_rs_dgrad",
       .flag = "--tp-comm-overlap-rs-dgrad",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_rs_dgrad; },
       .given = true,
       .absent = false},
      {.key = "overlap.tp_comm_overlap_disable_qkv",
       .flag = "--tp-comm-overlap-disable-qkv",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_disable_qkv; },
       .given = true,
       .absent = false},
      {.key = "overlap.tp_comm_overlap_disable_fc1",
       .flag = "--tp-comm-overlap-disable-fc1",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_disable_fc1; },
       .given = true,
       .absent = false},
      {.key = "overlap.tp_comm_overlap_compute_lanes",
       .flag = "",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_compute_lanes; }},
      {.key = "overlap.tp_comm_overlap_cfg",
       .flag = "",
       .get = [](S s) -> Json { return s.overlap.tp_comm_overlap_cfg.size(); }},
      {.key = "overlap.cp_comm_overlap",
       .flag = "",
       .get = [](S s) -> Json {
         return s.overlap.cp_comm_overlap == s.parallel.has_cp_ring()
                    ? Json(false)
                    : Json(s.overlap.cp_comm_overlap ? "true" : "false");
       }},
      {.key = "overlap.cp_flash_overlap", .flag = "", .get = [](S s) -> Json { return s.overlap.cp_flash_overlap; }},
      {.key = "overlap.fsdp_comm_overlap",
       .flag = "",
       .get = [](S s) -> Json {
         // Megatron-FSDP always overlaps where it shards gradients.
         return s.overlap.fsdp_comm_overlap == s.parallel.shards_gradients()
                    ? Json(false)
                    : Json(s.overlap.fsdp_comm_overlap ? "true" : "false");
       }},
      {.key = "overlap.fsdp_prefetch_depth",
       .flag = "",
       .get = [](S s) -> Json { return s.overlap.fsdp_prefetch_depth; }},
      {.key = "overlap.overlap_p2p_comm",
       .flag = "--no-overlap-p2p-communication",
       .get = [](S s) -> Json { return has_virtual_stages(s) ? Json(s.overlap.overlap_p2p_comm) : Json(); },
       .given = false,
       .absent = true,
       .in_bridge = true},
      {.key = "overlap.overlap_p2p_comm_warmup_flush",
       .flag = "--overlap-p2p-communication-warmup-flush",
       .get = [](S s) -> Json { return has_virtual_stages(s) && s.overlap.overlap_p2p_comm_warmup_flush; },
       .given = true,
       .absent = false},
      {.key = "overlap.batch_p2p_comm",
       .flag = "",
       .get = [](S s) -> Json { return s.overlap.batch_p2p_comm; },
       .in_bridge = true},
      {.key = "overlap.defer_embedding_wgrad_compute",
       .flag = "--defer-embedding-wgrad-compute",
       .get = [](S s) -> Json {
         return s.overlap.defer_embedding_wgrad_compute && s.parallel.pipeline_model_parallel_size > 1;
       },
       .given = true,
       .absent = false,
       .in_bridge = true},
      {.key = "overlap.wgrad_deferral_limit",
       .flag = "--wgrad-deferral-limit",
       .get = [](S s) -> Json { return unless_0(s.overlap.wgrad_deferral_limit); },
       .in_bridge = true},
      {.key = "training.micro_batch_size",
       .flag = "--micro-batch-size",
       .get = [](S s) -> Json { return s.training.micro_batch_size; }},
      {.key = "training.global_batch_size",
       .flag = "--global-batch-size",
       .get = [](S s) -> Json { return s.training.global_batch_size; }},
      {.key = "training.precision",
       .flag = "--bf16",
       .get = [](S s) -> Json { return s.training.precision; },
       .given = "bf16",
       .absent = "fp32"},
      {.key = "training.attention_backend",
       .flag = "--attention-backend",
       .get = [](S s) -> Json {
         if (s.training.attention_backend != AttentionBackend::fused) return "unfused";
         return s.framework.attention_kernel.starts_with("flash") ? "flash" : "fused";
       },
       .words =
           {{"fused", "fused"}, {"flash", "fused"}, {"auto", "fused"}, {"unfused", "unfused"}, {"local", "unfused"}}},
      {.key = "training.recompute_granularity",
       .flag = "--recompute-granularity",
       .get = [](S s) -> Json {
         const bool selects = s.training.recompute.granularity == Recompute::Granularity::selective;
         return is_full(s) ? Json("full") : selects ? Json("selective") : Json();
       }},
      {.key = "training.recompute_method",
       .flag = "--recompute-method",
       .get = [](S s) -> Json {
         return is_full(s) ? Json(s.training.recompute.method == Recompute::Method::block ? "block" : "uniform")
                           : Json();
       }},
      {.key = "training.recompute_num_layers",
       .flag = "--recompute-num-layers",
       .get = [](S s) -> Json { return is_full(s) ? Json(s.training.recompute.num_layers) : Json(); }},
      {.key = "training.recompute_whole_layers",
       .flag = "",
       .get = [](S s) -> Json { return s.training.recompute.whole_layers; }},
      {.key = "training.frozen_base", .flag = "", .get = [](S s) -> Json { return s.training.frozen_base; }},
      {.key = "training.gelu_fusion", .flag = "", .get = [](S s) -> Json { return s.training.gelu_fusion; }},
      {.key = "training.bias_gradient_fusion",
       .flag = "",
       .get = [](S s) -> Json { return s.training.bias_gradient_fusion; }},
      {.key = "training.gelu_bias_gradient_fusion",
       .flag = "",
       .get = [](S s) -> Json { return s.training.gelu_bias_gradient_fusion; }},
      {.key = "training.residual_fusion", .flag = "", .get = [](S s) -> Json { return s.training.residual_fusion; }},
      {.key = "training.norm_gradient_fusion",
       .flag = "",
       .get = [](S s) -> Json { return s.training.norm_gradient_fusion; }},
      {.key = "training.train_iters",
       .flag = "--train-iters",
       .get = [](S s) -> Json { return s.training.train_iters; }},
      {.key = "training.lr", .flag = "--lr", .get = [](S s) -> Json { return s.training.lr; }},
      {.key = "training.min_lr",
       .flag = "--min-lr",
       .get = [](S s) -> Json { return s.training.min_lr; },
       .absent = 0.0},
      {.key = "training.lr_warmup_iters",
       .flag = "--lr-warmup-iters",
       .get = [](S s) -> Json { return s.training.lr_warmup_iters; },
       .absent = 0},
      {.key = "training.lr_decay_iters",
       .flag = "--lr-decay-iters",
       .get = [](S s) -> Json { return unless_0(s.training.lr_decay_iters); }},
      {.key = "training.weight_decay",
       .flag = "--weight-decay",
       .get = [](S s) -> Json { return s.training.weight_decay; },
       .absent = 0.01},
      {.key = "training.adam_beta1", .flag = "--adam-beta1", .get = [](S s) -> Json { return s.training.adam_beta1; }},
      {.key = "training.adam_beta2",
       .flag = "--adam-beta2",
       .get = [](S s) -> Json { return s.training.adam_beta2; },
       .absent = 0.999},
      {.key = "training.adam_eps", .flag = "--adam-eps", .get = [](S s) -> Json { return s.training.adam_eps; }},
      {.key = "training.clip_grad", .flag = "--clip-grad", .get = [](S s) -> Json { return s.training.clip_grad; }},
      {.key = "training.seed", .flag = "--seed", .get = [](S s) -> Json { return s.training.seed; }},
      {.key = "training.init_method_std",
       .flag = "--init-method-std",
       .get = [](S s) -> Json { return s.training.init_method_std; }},
  };
}

// On a command line some stand before another one than among the keys.
constexpr std::pair<const char*, const char*> kBefore[] = {
    {"model.ffn_hidden_size", "model.num_attention_heads"},
    {"model.num_query_groups", "model.add_bias_linear"},
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
