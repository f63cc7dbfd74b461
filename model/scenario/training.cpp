#include <algorithm>

#include "model/scenario/not_modelled.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

void read_batch(TomlTable& table, const Parallel& parallel, Training& training) {
  training.micro_batch_size =
      value_or<std::int64_t>(table, "micro_batch_size", training.micro_batch_size, {.min = 1, .max = kMaxMicroBatch});
  const std::int64_t at_once = training.micro_batch_size * parallel.data_parallel_size;
  training.global_batch_size =
      value_or<std::int64_t>(table, "global_batch_size", at_once, {.min = 1, .max = kMaxGlobalBatch});
  if (training.global_batch_size % at_once != 0 || training.global_batch_size > kMaxGlobalBatch)
    throw table.failure(
        "global_batch_size",
        "expected a multiple of micro_batch_size x data_parallel_size = " + number(training.micro_batch_size) + " x " +
            number(parallel.data_parallel_size) + " = " + number(at_once) + " up to " + number(kMaxGlobalBatch) +
            ", got " + number(training.global_batch_size));
}

void read_optimizer(TomlTable& table, Training& training) {
  const Integers count{.min = 0, .max = std::int64_t{1} << 40};
  training.train_iters =
      value_or<std::int64_t>(table, "train_iters", training.train_iters, {.min = 1, .max = count.max});
  training.lr = value_or<double>(table, "lr", training.lr, {.min = 0, .max = 1e3});
  training.min_lr = value_or<double>(table, "min_lr", training.lr / 10, {.min = 0, .max = 1e3});
  training.lr_decay_iters = value_or<std::int64_t>(table, "lr_decay_iters", training.lr_decay_iters, count);
  const std::int64_t decay = training.lr_decay_iters > 0 ? training.lr_decay_iters : training.train_iters;
  training.lr_warmup_iters =
      value_or<std::int64_t>(table, "lr_warmup_iters", std::min(training.lr_warmup_iters, decay - 1), count);
  training.weight_decay = value_or<double>(table, "weight_decay", training.weight_decay, {.min = 0, .max = 1e3});
  const Numbers beta{.min = 0, .max = 1, .below_max = true};
  training.adam_beta1 = value_or<double>(table, "adam_beta1", training.adam_beta1, beta);
  training.adam_beta2 = value_or<double>(table, "adam_beta2", training.adam_beta2, beta);
  training.adam_eps = value_or<double>(table, "adam_eps", training.adam_eps, {.min = 0, .max = 1, .above_min = true});
  training.clip_grad = value_or<double>(table, "clip_grad", training.clip_grad, {.min = 0, .max = 1e9});
  if (training.min_lr > training.lr) throw table.error("min_lr", "at most lr");
  if (training.lr_warmup_iters >= decay)
    throw table.error("lr_warmup_iters",
                      "less than the " + number(decay) + " iterations that the learning rate decays");
}

// Megatron-LM's three options and what it checks of them.
Recompute read_recompute(TomlTable& table, const Transformer& model) {
  Recompute recompute;
  const std::string granularity =
      choice_or(table, "recompute_granularity", "none", {"none", "selective", "selective_op", "full"});
  const bool has_method = table.has("recompute_method"), has_layers = table.has("recompute_num_layers");
  const std::string method = choice_or(table, "recompute_method", "uniform", {"uniform", "block"});
  recompute.num_layers = value_or<std::int64_t>(table, "recompute_num_layers", 1, {.min = 1, .max = model.num_layers});
  recompute.whole_layers = value_or<bool>(table, "recompute_whole_layers", false);
  recompute.method = method == "block" ? Recompute::Method::block : Recompute::Method::uniform;
  if (granularity == "selective") recompute.granularity = Recompute::Granularity::selective;
  if (granularity == "selective_op") recompute.granularity = Recompute::Granularity::selective_op;
  if (granularity == "full") recompute.granularity = Recompute::Granularity::full;
  if (granularity != "full" && (has_method || has_layers))
    throw table.failure(has_method ? "recompute_method" : "recompute_num_layers",
                        "expected recompute_granularity = \"full\" as well, got \"" + granularity + "\"");
  return recompute;
}

}  // namespace

Training read_training(TomlTable table, const Parallel& parallel, const Transformer& model) {
  Training training;
  read_batch(table, parallel, training);
  training.recompute = read_recompute(table, model);
  const std::string backend = choice_or(table, "attention_backend", "fused", {"fused", "unfused"});
  if (backend == "unfused" && parallel.context_parallel_size > 1)
    throw table.failure("attention_backend",
                        "expected \"fused\" with context_parallel_size " + number(parallel.context_parallel_size) +
                            ", whose ranks merge attention over parts of the keys, got \"unfused\"");
  training.attention_backend = backend == "fused" ? AttentionBackend::fused : AttentionBackend::unfused;
  training.frozen_base = value_or<bool>(table, "frozen_base", training.frozen_base);
  training.gelu_fusion = value_or<bool>(table, "gelu_fusion", training.gelu_fusion);
  training.bias_gradient_fusion = value_or<bool>(table, "bias_gradient_fusion", training.bias_gradient_fusion);
  training.gelu_bias_gradient_fusion =
      value_or<bool>(table, "gelu_bias_gradient_fusion", training.gelu_bias_gradient_fusion);
  training.residual_fusion = value_or<bool>(table, "residual_fusion", training.residual_fusion);
  training.norm_gradient_fusion = value_or<bool>(table, "norm_gradient_fusion", training.norm_gradient_fusion);
  read_optimizer(table, training);
  if (const auto given = table.find<std::string>("precision"); given && !not_modelled(*given).empty())
    throw table.failure("precision", not_modelled(*given));
  training.precision = choice_or(table, "precision", training.precision, {"fp32", "fp64", "bf16"});
  training.seed = static_cast<std::uint64_t>(
      value_or<std::int64_t>(table, "seed", static_cast<std::int64_t>(training.seed), {.min = 0}));
  training.init_method_std =
      value_or<double>(table, "init_method_std", training.init_method_std, {.min = 0, .max = 1e3});
  training.data = value_or<std::string>(table, "data", "");
  training.load = value_or<std::string>(table, "load", "");
  training.checkpoint_dir = value_or<std::string>(table, "checkpoint_dir", "");
  training.checkpoint_interval = value_or<std::int64_t>(table, "checkpoint_interval", training.checkpoint_interval,
                                                        {.min = 0, .max = std::int64_t{1} << 40});
  if (training.checkpoint_interval > 0 && training.checkpoint_dir.empty())
    throw table.failure("checkpoint_interval", "expected a checkpoint_dir as well, got none");
  training.enable_cuda_graph = value_or<bool>(table, "enable_cuda_graph", training.enable_cuda_graph);
  training.cudnn_attention_dropout = value_or<bool>(table, "cudnn_attention_dropout", training.cudnn_attention_dropout);
  training.timeout_s =
      value_or<double>(table, "timeout_s", training.timeout_s, {.min = 0, .max = 1e6, .above_min = true});
  table.finish();
  return training;
}

}  // namespace stretto
