#include <algorithm>

#include "interchange/megatron.hpp"
#include "interchange/megatron_flags.hpp"
#include "interchange/recipe_settings.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// A setting that is not modelled, with the value that has no effect.
struct Near {
  const char* name;
  Json neutral;
  const char* effect;
};
const std::vector<Near>& near_keys() {
  static const std::vector<Near> keys = {
      {"rotary_percentage", 1.0, "all of a head turns, which moves more bytes"},
      {"rotary_percent", 1.0, "all of a head turns, which moves more bytes"},
      {"fp32_residual_connection", false, "the residual stream has 2 bytes an element, not 4"},
      {"mtp_num_layers", nullptr, "layers that predict further tokens, each with a head, are left out"},
      {"gradient_accumulation_fusion", true,
       "weight gradients are added inside their product: one pass less over them"},
      {"bias_activation_fusion", true, "bias and activation are one pass over memory"},
      {"bias_dropout_add_fusion", true, "bias, dropout and the residual addition are one pass over memory"},
      {"apply_rope_fusion", true, "rotary positions are one pass over memory"},
      {"transformer_engine", true, "kernels are TransformerEngine's"},
      {"mcore_gpt", true, "layers are Megatron-core's"},
      {"megatron_amp_O2", true, "gradients are summed in f32 in one buffer"},
      {"sharp", false, "NCCL's own algorithms reduce, without the network's help"},
      {"ub_tp_comm_overlap_cfg", nullptr, kDefaultProducts},
      {"tp_comm_overlap_cfg", nullptr, kDefaultProducts},
      {"num_micro_batches_with_partial_activation_checkpoints", nullptr, "all micro-batches are recomputed equally"},
      {"activations_checkpoint_layers_per_pipeline", nullptr, "all stages recompute equally"},
      {"fine_grained_activation_offloading", false, "activations stay on the GPU"},
      {"fp8_output_proj", false, "the output layer's product is in bf16"},
      {"cpu_offloading", false, "activations stay on the GPU"},
      {"optimizer_cpu_offload", false, "the optimizer runs on the GPU"},
      {"enable_cuda_graph", false, "the host issues operations one by one"},
      {"external_cuda_graph", false, "the host issues operations one by one"},
      {"delay_wgrad_compute", false, "weight gradients of experts are part of their backward pass"},
      {"moe_grouped_gemm", true, "products of a rank's experts are one grouped kernel, and not one after another"},
      {"moe_shared_expert_overlap", false, "a shared expert is not concurrent with the dispatch of rows"},
      {"deterministic_mode", false, "kernels are the fastest ones, not the deterministic ones"},
      {"parallel_attention", false, "the MLP follows attention, and is not concurrent with it"},
      {"store_param_remainders", true, "masters in fp32 are the parameter and 16 more bits"},
  };
  return keys;
}

// Sections that say nothing of a step, and keys of NeMo's trainer and model and of Megatron-Bridge that act on files,
// logs, checks, evaluation or the course of training, and are no flag of Megatron-LM's.
constexpr const char* kIdleSections[] = {"exp_manager",
                                         "run",
                                         "hydra",
                                         "logger",
                                         "checkpoint",
                                         "profiling",
                                         "ft",
                                         "straggler",
                                         "nvrx_straggler",
                                         "rng",
                                         "rerun_state_machine",
                                         "validation",
                                         "tensor_inspect",
                                         "inprocess_restart",
                                         "dataset",
                                         "model.data",
                                         "data",
                                         "scheduler",
                                         "model.optim.sched",
                                         "model.nsys_profile",
                                         "log",
                                         "resume",
                                         "env_vars",
                                         "model.gc_interval",
                                         "dist",
                                         "trainer.logger",
                                         "trainer.callbacks",
                                         "tokenizer",
                                         "model.memory_profile",
                                         "model.seq_len_callback"};
constexpr const char* kIdleKeys[] = {"name",
                                     "restore_from_path",
                                     "accelerator",
                                     "enable_checkpointing",
                                     "max_epochs",
                                     "max_time",
                                     "log_every_n_steps",
                                     "val_check_interval",
                                     "limit_val_batches",
                                     "limit_test_batches",
                                     "limit_train_batches",
                                     "accumulate_grad_batches",
                                     "gradient_clip_algorithm",
                                     "benchmark",
                                     "enable_model_summary",
                                     "use_distributed_sampler",
                                     "replace_sampler_ddp",
                                     "resume_from_checkpoint",
                                     "num_sanity_val_steps",
                                     "check_val_every_n_epoch",
                                     "enable_progress_bar",
                                     "rampup_batch_size",
                                     "train_samples",
                                     "native_amp_init_scale",
                                     "native_amp_growth_interval",
                                     "hysteresis",
                                     "fp16_lm_cross_entropy",
                                     "gc_interval",
                                     "precision_plugin",
                                     "use_cpu_initialization",
                                     "perform_initialization",
                                     "eval_iters",
                                     "eval_interval",
                                     "skip_train",
                                     "exit_signal_handler",
                                     "exit_interval",
                                     "exit_duration_in_mins",
                                     "manual_gc",
                                     "manual_gc_interval",
                                     "manual_gc_eval",
                                     "check_weight_hash_across_dp_replicas_interval",
                                     "check_for_nan_in_grad",
                                     "check_for_nan_in_loss_and_grad",
                                     "lr_decay_samples",
                                     "lr_warmup_samples",
                                     "lr_warmup_fraction",
                                     "start_weight_decay",
                                     "end_weight_decay",
                                     "weight_decay_incr_style",
                                     "onnx_safe",
                                     "convert_to_hf",
                                     "pre_process",
                                     "post_process",
                                     "persist_layer_norm",
                                     "do_layer_norm_weight_decay",
                                     "init_method_std",
                                     "use_scaled_init_method",
                                     "apply_query_key_layer_scaling",
                                     "masked_softmax_fusion",
                                     "sync_batch_comm",
                                     "resume_if_exists",
                                     "results_dir",
                                     "time_limit",
                                     "dependency",
                                     "model_type"};

}  // namespace

bool is_idle_key(const std::string& key, const std::string& path) {
  for (const std::string section : kIdleSections)
    if (path.starts_with(section + ".")) return true;
  if (std::find(std::begin(kIdleKeys), std::end(kIdleKeys), key) != std::end(kIdleKeys)) return true;
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  const FlagRule* rule = rule_of(flag);
  return rule != nullptr && rule->verdict == FlagVerdict::without_effect;
}

void RecipeSettings::near(const std::string& path, const Json& value, const std::string& effect) {
  std::string what = path;
  if (!value.is_structured()) what += ": " + (value.is_string() ? value.get<std::string>() : value.dump());
  settings.approximated.push_back({what.substr(0, 100), line_of(path), effect});
}

bool is_near_key(RecipeSettings& recipe, const std::string& key, const std::string& path, const Json& value) {
  // A switch of an overlap mode that a scenario has is taken.
  const bool is_mode = std::any_of(megatron_rows().begin(), megatron_rows().end(), [&](const MegatronRow& row) {
    return row.is_switch && row.key == "overlap." + key;
  });
  for (const Near& one : near_keys())
    if (key == one.name && !is_mode) {
      const bool is_same =
          value == one.neutral || value.is_null() || (value.is_number() && one.neutral.is_null() && value == 0);
      if (!is_same) recipe.near(path, value, one.effect);
      return true;
    }
  return false;
}

}  // namespace stretto
