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

void read_optimizer(TomlTable& table, KeyReader& keys, Training& training) {
  for (const char* key : {"train_iters", "lr", "lr_decay_iters"}) keys.read(key);
  training.min_lr = training.lr / 10;
  keys.read("min_lr");
  const std::int64_t decay = training.lr_decay_iters > 0 ? training.lr_decay_iters : training.train_iters;
  training.lr_warmup_iters = std::min(training.lr_warmup_iters, decay - 1);
  keys.read("lr_warmup_iters");
  if (training.min_lr > training.lr) throw table.error("min_lr", "at most lr");
  keys.read("lr_decay_style");
  for (const char* key : {"lr_wsd_decay_iters", "lr_wsd_decay_style"})
    if (table.has(key) && training.lr_decay_style != LrDecay::wsd)
      throw table.failure(key, std::string("expected lr_decay_style = \"WSD\" as well, got \"") +
                                   name_of(training.lr_decay_style) + "\"");
  keys.read("lr_wsd_decay_iters", training.lr_decay_style == LrDecay::wsd,
            Bounds{.min = training.lr_decay_style == LrDecay::wsd ? 1.0 : 0.0, .max = double(decay)});
  keys.read("lr_wsd_decay_style");
  if (training.lr_warmup_iters >= decay)
    throw table.error("lr_warmup_iters",
                      "less than the " + number(decay) + " iterations that the learning rate decays");
}

// Reads a path, or an array of at least one.
std::vector<std::string> read_paths(TomlTable& table, const char* key) {
  if (!table.has(key)) return {};
  auto paths = table.has_array(key) ? value_or<std::vector<std::string>>(table, key, {})
                                    : std::vector{value_or<std::string>(table, key, "")};
  if (paths.empty()) throw table.error(key, "a path, or an array of paths");
  if (paths.front().empty() && paths.size() == 1) return {};
  for (const std::string& path : paths)
    if (path.empty()) throw table.failure(key, "expected paths, got \"\" among them");
  return paths;
}

// Reads the files of tokens and what is measured on those for validation.
void read_data(TomlTable& table, KeyReader& keys, const Transformer& model, Training& training) {
  training.data = read_paths(table, "data");
  training.validation_data = read_paths(table, "validation_data");
  training.data_weights = value_or<std::vector<double>>(table, "data_weights", {});
  const std::vector<double>& weights = training.data_weights;
  if (!weights.empty() && weights.size() != training.data.size())
    throw table.failure("data_weights", "expected a weight for each of the " +
                                            number(std::int64_t(training.data.size())) + " paths of data, got " +
                                            number(std::int64_t(weights.size())));
  double total = 0;
  for (const double weight : weights) total += weight;
  for (const double weight : weights)
    if (!(weight * 1024 >= total) || total > 1e15)
      throw table.error("data_weights", "positive weights, none below 1/1024 of their sum");
  for (const char* key : {"reset_attention_mask", "reset_position_ids", "eod_mask_loss", "eod_token"}) keys.read(key);
  if (training.eod_token >= model.vocab_size)
    throw table.failure("eod_token", "expected a token below vocab_size = " + number(model.vocab_size) + ", got " +
                                         number(training.eod_token));
  if (training.reset_attention_mask && (model.gated_delta.any() || model.mamba.any()))
    throw table.failure("reset_attention_mask",
                        "expected false with linear attention, got true: states that end with a document are not "
                        "modelled yet");
  if (training.divides_documents() && training.eod_token < 0 && !training.data.empty())
    throw table.failure("eod_token", "expected the token that ends a document of data, got none");
  for (const char* key : {"eval_interval", "eval_iters"})
    if (table.has(key) && training.validation_data.empty())
      throw table.failure(key, "expected validation_data as well, got none");
  keys.read("eval_interval");
  keys.read("eval_iters");
  if (!training.validation_data.empty() && (model.hidden_dropout > 0 || model.attention_dropout > 0))
    throw table.failure(
        "validation_data",
        "expected hidden_dropout and attention_dropout 0 with it, got dropout: a pass without dropout in "
        "a training with it is not modelled");
}

// Returns whether the value is [], which says "none of them".
bool is_empty_array(TomlTable& table, const char* key) {
  return table.has_array(key) && table.find<std::vector<std::string>>(key)->empty();
}

// Reads which parts of a layer are computed again, with Megatron-LM's checks (core/transformer/transformer_config.py).
void read_recompute_modules(TomlTable& table, const Transformer& model, Recompute& recompute) {
  const char* key = "recompute_modules";
  if (!table.has(key)) return;
  if (is_empty_array(table, key)) {
    if (recompute.granularity == Recompute::Granularity::selective)
      recompute.granularity = Recompute::Granularity::none;
    return;
  }
  recompute.modules = enums_or(table, key, Recompute::Module::core_attn);
  for (const auto module : recompute.modules)
    if (std::count(recompute.modules.begin(), recompute.modules.end(), module) > 1)
      throw table.failure(key, std::string("expected different modules, got \"") + name_of(module) + "\" twice");
  if (recompute.granularity != Recompute::Granularity::selective)
    throw table.failure(key, std::string("expected recompute_granularity = \"selective\" as well, got \"") +
                                 name_of(recompute.granularity) + "\"");
  if (recompute.repeats(Recompute::Module::mla_up_proj) && !model.latent.any())
    throw table.failure(key, "expected multi_latent_attention = true with \"mla_up_proj\", got none");
  using Module = Recompute::Module;
  for (const auto module : {Module::moe, Module::moe_act, Module::shared_experts}) {
    if (recompute.repeats(module) && !model.experts.any())
      throw table.failure(key, std::string("expected num_moe_experts with \"") + name_of(module) + "\", got none");
    if (module != Module::moe && recompute.repeats(Module::moe) && recompute.repeats(module))
      throw table.failure(key, std::string("expected no \"") + name_of(module) +
                                   "\" with \"moe\", because it is "
                                   "a part of it, got both");
  }
}

// Reads the modules of CUDA graphs, with Megatron-LM's checks (core/transformer/transformer_config.py).
void read_graphs(TomlTable& table, const Parallel& parallel, Training& training) {
  const char* key = "cuda_graph_modules";
  if (!table.has(key) || is_empty_array(table, key)) return;
  training.cuda_graph_modules = enums_or(table, key, GraphModule::full_iteration);
  const bool is_whole = training.captures(GraphModule::full_iteration);
  if (is_whole && training.cuda_graph_modules.size() > 1)
    throw table.failure(key, "expected \"full_iteration\" alone, got other modules, too");
  if (training.captures(GraphModule::moe_preprocess) && !training.captures(GraphModule::moe_router))
    throw table.failure(key, "expected \"moe_router\" with \"moe_preprocess\", got none");
  // transformer_config.py:2862 of Megatron-LM d98e8a64
  if (training.captures(GraphModule::moe_router) && training.recompute.repeats(Recompute::Module::moe))
    throw table.failure(key,
                        "expected no \"moe_router\" with recompute_modules = \"moe\", which repeats what the graph "
                        "captures, got both");
  if (!is_whole && training.recompute.granularity == Recompute::Granularity::full)
    throw table.failure(key, "expected \"full_iteration\" with recompute_granularity = \"full\", got parts of a layer");
  // Ranks that gather tokens count the rows on the host, with padding as well
  // (core/transformer/moe/token_dispatcher.py).
  const bool is_padded = parallel.moe_pad_expert_input_to_capacity && !parallel.gathers_tokens_for_experts();
  if (is_whole && parallel.expert_model_parallel_size > 1 && parallel.moe_expert_rank_capacity_factor == 0 &&
      !is_padded)
    throw table.failure(
        key,
        "expected moe_expert_rank_capacity_factor, or padded rows that are not gathered, with \"full_iteration\": "
        "without it the host waits for the number of rows that come");
}

// Reads the options of recomputation, with Megatron-LM's checks.
void read_recompute(TomlTable& table, KeyReader& keys, const Transformer& model, Recompute& recompute) {
  keys.read("recompute_granularity");
  const bool has_method = table.has("recompute_method"), has_layers = table.has("recompute_num_layers");
  if (model.experts.any() && recompute.granularity == Recompute::Granularity::selective_op)
    throw table.failure("recompute_granularity",
                        "expected \"none\", \"selective\" (attention's core) or \"full\" with num_moe_experts, got "
                        "\"selective_op\", which is not modelled for experts yet");
  if (model.norms_results() && recompute.granularity == Recompute::Granularity::selective_op)
    throw table.failure("recompute_granularity",
                        "expected \"selective\", \"full\" or none with norm_places \"" +
                            std::string(name_of(model.norm_places)) +
                            "\", got \"selective_op\", which is not modelled for norms of results yet");
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
  read_recompute_modules(table, model, recompute);
}

}  // namespace

Training read_training(TomlTable table, const Parallel& parallel, const Transformer& model,
                       const Training& by_default) {
  Scenario scenario;
  Training& training = scenario.training = by_default;
  KeyReader keys(table, "training", scenario);
  read_batch(table, keys, parallel, training);
  read_recompute(table, keys, model, training.recompute);
  read_graphs(table, parallel, training);
  keys.read("attention_backend");
  if (training.attention_backend == AttentionBackend::unfused && parallel.context_parallel_size > 1)
    throw table.failure("attention_backend",
                        "expected \"fused\" with context_parallel_size " + number(parallel.context_parallel_size) +
                            (parallel.has_cp_ring() ? ", whose ring merges attention over parts of the keys"
                                                    : ", whose exchanges only fused attention has") +
                            ", got \"unfused\"");
  if (training.attention_backend == AttentionBackend::unfused && model.has_score_rules())
    throw table.failure("attention_backend",
                        "expected \"fused\" with windows, chunks, sinks or caps of attention, got \"unfused\", which "
                        "does not have them here");
  if (training.fp8_dot_product_attention && model.has_score_rules())
    throw table.failure("fp8_dot_product_attention",
                        "expected false with windows, chunks, sinks or caps of attention: of fp8 attention with them "
                        "there are no rates");
  if (training.frozen_base && model.softmax_type == SoftmaxType::learnable)
    throw table.failure("frozen_base",
                        "expected false with softmax_type \"learnable\", whose gradients are computed "
                        "with those of attention");
  if (training.attention_backend == AttentionBackend::unfused && model.latent.any())
    throw table.failure("attention_backend",
                        "expected \"fused\" with multi_latent_attention, got \"unfused\", whose products have one "
                        "width for queries and values");
  read_optimizer(table, keys, training);
  read_data(table, keys, model, training);
  if (const auto given = table.find<std::string>("precision");
      given && (given->find("fp8") != std::string::npos || given->find("fp4") != std::string::npos))
    throw table.failure("precision",
                        "expected \"bf16\" with fp8_format (\"e4m3\" or \"hybrid\") and fp8_recipe, or with fp4_format "
                        "= \"e2m1\", got \"" +
                            *given + "\"");
  keys.read_others();
  if (training.low_precision.is_on() && !training.low_precision.fp8_wgrad)
    throw table.failure("fp8_wgrad",
                        "expected true, got false: weight gradients in another precision than data gradients are not "
                        "modelled yet");
  const ExpertLoads& loads = training.expert_loads;
  if ((loads.kind == ExpertLoads::Kind::measured) == loads.file.empty())
    throw table.failure(loads.file.empty() ? "moe_expert_loads" : "moe_expert_loads_file",
                        "expected moe_expert_loads = \"measured\" and a moe_expert_loads_file, got one of them");
  if (loads.kind == ExpertLoads::Kind::measured && !model.experts.any())
    throw table.failure("moe_expert_loads", "expected num_moe_experts with \"measured\", got none");
  if (training.checkpoint_interval > 0 && training.checkpoint_dir.empty())
    throw table.failure("checkpoint_interval", "expected a checkpoint_dir as well, got none");
  if (training.save_retain_interval > 0 &&
      (training.checkpoint_interval == 0 || training.save_retain_interval % training.checkpoint_interval != 0))
    throw table.failure("save_retain_interval",
                        "expected a multiple of checkpoint_interval = " + number(training.checkpoint_interval) +
                            ", got " + number(training.save_retain_interval));
  table.finish();
  return training;
}

}  // namespace stretto
