#include <algorithm>

#include "model/scenario/keys.hpp"
#include "model/scenario/not_modelled.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

void read_batch(const TomlTable& table, KeyReader& keys, const Parallel& parallel, Training& training) {
  keys.read("micro_batch_size");
  const std::int64_t at_once = training.micro_batch_size * parallel.data_parallel_size;
  training.global_batch_size = at_once;
  keys.read("global_batch_size");
  if (training.global_batch_size % at_once != 0 || training.global_batch_size > kMaxGlobalBatch)
    throw table.failure(
        "global_batch_size",
        "expected a multiple of micro_batch_size x data_parallel_size = " + number(training.micro_batch_size) + " x " +
            number(parallel.data_parallel_size) + " = " + number(at_once) + " up to " + number(kMaxGlobalBatch) +
            ", got " + number(training.global_batch_size));
}

void read_optimizer(const TomlTable& table, KeyReader& keys, Training& training) {
  for (const char* key : {"train_iters", "lr", "lr_decay_iters"}) keys.read(key);
  training.min_lr = training.lr / 10;
  keys.read("min_lr");
  const std::int64_t decay = training.lr_decay_iters > 0 ? training.lr_decay_iters : training.train_iters;
  training.lr_warmup_iters = std::min(training.lr_warmup_iters, decay - 1);
  keys.read("lr_warmup_iters");
  if (training.min_lr > training.lr) throw table.error("min_lr", "at most lr");
  if (training.lr_warmup_iters >= decay)
    throw table.error("lr_warmup_iters",
                      "less than the " + number(decay) + " iterations that the learning rate decays");
}

// Reads the three options of recomputation, with Megatron-LM's checks.
void read_recompute(TomlTable& table, KeyReader& keys, const Transformer& model, const Recompute& recompute) {
  keys.read("recompute_granularity");
  const bool has_method = table.has("recompute_method"), has_layers = table.has("recompute_num_layers");
  if (model.experts.any() && recompute.granularity == Recompute::Granularity::selective_op)
    throw table.failure("recompute_granularity",
                        "expected \"none\", \"selective\" (attention's core) or \"full\" with num_moe_experts, got "
                        "\"selective_op\", which is not modelled for experts yet");
  if (model.latent.any() && recompute.granularity == Recompute::Granularity::selective_op)
    throw table.failure("recompute_granularity",
                        "expected \"none\", \"selective\" (attention's core) or \"full\" with "
                        "multi_latent_attention, got \"selective_op\", which is not modelled for latent vectors yet");
  keys.read("recompute_method");
  keys.read("recompute_num_layers", false, Bounds{.min = 1, .max = double(model.num_layers)});
  if (recompute.granularity != Recompute::Granularity::full && (has_method || has_layers))
    throw table.failure(has_method ? "recompute_method" : "recompute_num_layers",
                        std::string("expected recompute_granularity = \"full\" as well, got \"") +
                            name_of(recompute.granularity) + "\"");
}

}  // namespace

Training read_training(TomlTable table, const Parallel& parallel, const Transformer& model) {
  Scenario scenario;
  Training& training = scenario.training;
  KeyReader keys(table, "training", scenario);
  read_batch(table, keys, parallel, training);
  read_recompute(table, keys, model, training.recompute);
  keys.read("attention_backend");
  if (training.attention_backend == AttentionBackend::unfused && parallel.context_parallel_size > 1)
    throw table.failure("attention_backend",
                        "expected \"fused\" with context_parallel_size " + number(parallel.context_parallel_size) +
                            ", whose ranks merge attention over parts of the keys, got \"unfused\"");
  if (training.attention_backend == AttentionBackend::unfused && model.latent.any())
    throw table.failure("attention_backend",
                        "expected \"fused\" with multi_latent_attention, got \"unfused\", whose products have one "
                        "width for queries and values");
  read_optimizer(table, keys, training);
  if (const auto given = table.find<std::string>("precision"); given && !not_modelled(*given).empty())
    throw table.failure("precision", not_modelled(*given));
  keys.read_others();
  if (training.checkpoint_interval > 0 && training.checkpoint_dir.empty())
    throw table.failure("checkpoint_interval", "expected a checkpoint_dir as well, got none");
  table.finish();
  return training;
}

}  // namespace stretto
