#include "model/scenario.hpp"

#include <algorithm>
#include <filesystem>

#include "base/toml.hpp"

namespace stretto {
namespace {

using Integers = Limits<std::int64_t>;
using Numbers = Limits<double>;

// Far above anything built, and low enough that products of sizes stay within 64 bits.
constexpr std::int64_t kMaxLayers = 1 << 14;
constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxFfn = 1 << 22;
constexpr std::int64_t kMaxTokens = 1 << 24;  // sequence, positions, tokens of a micro-batch
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxRanks = 1 << 24;
constexpr std::int64_t kMaxTensorParallel = 1 << 10;
constexpr std::int64_t kMaxRanksOnDevice = 1 << 10;  // they are told apart, one by one, by whatever looks at a schedule
constexpr std::int64_t kMaxMicroBatch = 1 << 16;
constexpr std::int64_t kMaxGlobalBatch = std::int64_t{1} << 32;
constexpr std::int64_t kMaxLayerCalls = 1 << 22;  // layers × micro-batches of one step: the length of an order
constexpr double kMaxBytes = double(std::int64_t{1} << 60);

std::string number(std::int64_t value) { return std::to_string(value); }

// Norms, activation, positions, heads of keys and values, biases, head: GPT-2's unless the preset or the file says
// more.
void read_style(TomlTable& table, Transformer& model) {
  const auto one_of = [&](const char* key, auto& value, auto first, auto second) {
    value = choice_or(table, key, name_of(value), {name_of(first), name_of(second)}) == name_of(first) ? first : second;
  };
  const bool has_base = table.has("rotary_base");
  one_of("normalization", model.normalization, Normalization::layer_norm, Normalization::rms_norm);
  one_of("position_embedding_type", model.position_embedding_type, PositionEmbedding::learned_absolute,
         PositionEmbedding::rope);
  model.swiglu = value_or<bool>(table, "swiglu", model.swiglu);
  model.rotary_base =
      value_or<double>(table, "rotary_base", model.rotary_base, {.min = 1, .max = 1e12, .above_min = true});
  model.num_query_groups =
      value_or<std::int64_t>(table, "num_query_groups", model.kv_heads(), {.min = 1, .max = kMaxHidden});
  model.add_bias_linear = value_or<bool>(table, "add_bias_linear", model.add_bias_linear);
  model.untie_embeddings_and_output_weights =
      value_or<bool>(table, "untie_embeddings_and_output_weights", model.untie_embeddings_and_output_weights);
  if (has_base && model.position_embedding_type != PositionEmbedding::rope)
    throw table.failure("rotary_base", std::string("expected position_embedding_type = \"rope\" as well, got \"") +
                                           name_of(model.position_embedding_type) + "\"");
}

Transformer read_model(TomlTable table, const Parallel& parallel) {
  Transformer model;
  const bool from_preset = table.has("preset");
  if (from_preset) model = preset(choice_or(table, "preset", "", preset_names()));
  const auto size = [&](const char* key, std::int64_t& value, std::int64_t max) {
    const Integers limits{.min = 1, .max = max};
    value = from_preset ? value_or<std::int64_t>(table, key, value, limits) : require<std::int64_t>(table, key, limits);
  };
  size("num_layers", model.num_layers, kMaxLayers);
  size("hidden_size", model.hidden_size, kMaxHidden);
  size("num_attention_heads", model.num_attention_heads, kMaxHidden);
  size("seq_length", model.seq_length, kMaxTokens);
  size("vocab_size", model.vocab_size, kMaxVocab);
  const std::int64_t ffn = from_preset && !table.has("hidden_size") ? model.ffn_hidden_size : 4 * model.hidden_size;
  model.ffn_hidden_size = value_or<std::int64_t>(table, "ffn_hidden_size", ffn, {.min = 1, .max = kMaxFfn});
  model.max_position_embeddings = value_or<std::int64_t>(table, "max_position_embeddings",
                                                         from_preset ? model.max_position_embeddings : model.seq_length,
                                                         {.min = 1, .max = kMaxTokens});
  // Megatron-LM's: each tensor-parallel rank gets a multiple of it.
  const std::int64_t multiple =
      value_or<std::int64_t>(table, "make_vocab_size_divisible_by", 1, {.min = 1, .max = kMaxMicroBatch}) *
      parallel.tensor_model_parallel_size;
  model.padded_vocab_size = (model.vocab_size + multiple - 1) / multiple * multiple;
  read_style(table, model);
  table.finish();

  if (model.hidden_size % model.num_attention_heads != 0)
    throw table.failure("num_attention_heads", "expected a divisor of hidden_size " + number(model.hidden_size) +
                                                   ", got " + number(model.num_attention_heads));
  if (model.num_attention_heads % model.kv_heads() != 0)
    throw table.failure("num_query_groups", "expected a divisor of num_attention_heads " +
                                                number(model.num_attention_heads) + ", got " +
                                                number(model.kv_heads()));
  if (model.position_embedding_type == PositionEmbedding::rope && model.head_dim() % 2 != 0)
    throw table.failure("num_attention_heads", "expected an even hidden_size / num_attention_heads for rope, got " +
                                                   number(model.hidden_size) + " / " +
                                                   number(model.num_attention_heads) + " = " +
                                                   number(model.head_dim()));
  if (model.seq_length > model.max_position_embeddings)
    throw table.failure("seq_length", "expected at most max_position_embeddings " +
                                          number(model.max_position_embeddings) + ", got " + number(model.seq_length));
  return model;
}

Cluster read_cluster(TomlTable table) {
  Cluster cluster;
  cluster.cores_per_device =
      value_or<std::int64_t>(table, "cores_per_device", cluster.cores_per_device, {.min = 0, .max = 1 << 16});
  cluster.ranks_per_device =
      value_or<std::int64_t>(table, "ranks_per_device", cluster.ranks_per_device, {.min = 0, .max = kMaxRanks});
  cluster.link_GBps =
      value_or<double>(table, "link_GBps", cluster.link_GBps, {.min = 0, .max = 1e6, .above_min = true});
  cluster.link_latency_us = value_or<double>(table, "link_latency_us", cluster.link_latency_us, {.min = 0, .max = 1e9});
  table.finish();
  return cluster;
}

Parallel read_parallel(TomlTable table) {
  Parallel parallel;
  parallel.data_parallel_size =
      value_or<std::int64_t>(table, "data_parallel_size", parallel.data_parallel_size, {.min = 1, .max = kMaxRanks});
  parallel.tensor_model_parallel_size =
      value_or<std::int64_t>(table, "tensor_model_parallel_size", 1, {.min = 1, .max = kMaxTensorParallel});
  parallel.sequence_parallel = value_or<bool>(table, "sequence_parallel", parallel.sequence_parallel);
  table.finish();
  if (parallel.ranks() > kMaxRanks)
    throw table.failure("data_parallel_size", "expected at most " + number(kMaxRanks) + " ranks, got " +
                                                  number(parallel.data_parallel_size) + " x " +
                                                  number(parallel.tensor_model_parallel_size));
  return parallel;
}

// What tensor parallelism cuts must divide (Megatron-LM checks the same); the vocabulary is padded to.
void check_tensor_parallel(const TomlTable& table, const Transformer& model, const Parallel& parallel) {
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  const auto divide = [&](const char* what, std::int64_t size) {
    if (size % tp != 0)
      throw table.failure("tensor_model_parallel_size",
                          std::string("expected a divisor of ") + what + " " + number(size) + ", got " + number(tp));
  };
  divide("num_attention_heads", model.num_attention_heads);
  divide("num_query_groups", model.kv_heads());
  divide("ffn_hidden_size", model.ffn_hidden_size);
  if (parallel.sequence_parallel && model.seq_length % tp != 0)
    throw table.failure("sequence_parallel", "expected a seq_length that tensor_model_parallel_size " + number(tp) +
                                                 " divides, got " + number(model.seq_length));
}

// A switch that Megatron-LM and NeMo name differently.
bool switch_or(TomlTable& table, const std::string& megatron, const std::string& nemo, bool fallback) {
  const auto first = table.find<bool>(megatron), second = table.find<bool>(nemo);
  if (first && second)
    throw table.failure(nemo, "expected only one of " + megatron + " and " + nemo + " (the same switch), got both");
  return first ? *first : second.value_or(fallback);
}

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
  table.finish();
  if (overlap.overlap_param_gather && !overlap.overlap_grad_reduce)
    throw table.failure(table.has("overlap_param_sync") ? "overlap_param_sync" : "overlap_param_gather",
                        "expected overlap_grad_reduce = true as well, got false: overlap_param_gather needs "
                        "overlap_grad_reduce");
  return overlap;
}

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
  const std::string granularity = choice_or(table, "recompute_granularity", "none", {"none", "selective", "full"});
  const bool has_method = table.has("recompute_method"), has_layers = table.has("recompute_num_layers");
  const std::string method = choice_or(table, "recompute_method", "uniform", {"uniform", "block"});
  recompute.num_layers = value_or<std::int64_t>(table, "recompute_num_layers", 1, {.min = 1, .max = model.num_layers});
  recompute.method = method == "block" ? Recompute::Method::block : Recompute::Method::uniform;
  if (granularity == "selective") recompute.granularity = Recompute::Granularity::selective;
  if (granularity == "full") recompute.granularity = Recompute::Granularity::full;
  if (granularity != "full" && (has_method || has_layers))
    throw table.failure(has_method ? "recompute_method" : "recompute_num_layers",
                        "expected recompute_granularity = \"full\" as well, got \"" + granularity + "\"");
  return recompute;
}

Training read_training(TomlTable table, const Parallel& parallel, const Transformer& model) {
  Training training;
  read_batch(table, parallel, training);
  training.recompute = read_recompute(table, model);
  read_optimizer(table, training);
  training.precision = choice_or(table, "precision", training.precision, {"fp32", "fp64"});
  training.seed = static_cast<std::uint64_t>(
      value_or<std::int64_t>(table, "seed", static_cast<std::int64_t>(training.seed), {.min = 0}));
  training.init_method_std =
      value_or<double>(table, "init_method_std", training.init_method_std, {.min = 0, .max = 1e3});
  training.data = value_or<std::string>(table, "data", "");
  training.checkpoint_dir = value_or<std::string>(table, "checkpoint_dir", "");
  training.checkpoint_interval = value_or<std::int64_t>(table, "checkpoint_interval", training.checkpoint_interval,
                                                        {.min = 0, .max = std::int64_t{1} << 40});
  training.timeout_s =
      value_or<double>(table, "timeout_s", training.timeout_s, {.min = 0, .max = 1e6, .above_min = true});
  table.finish();
  return training;
}

Compare read_compare(TomlTable table, const Scenario& scenario) {
  Compare compare;
  compare.modes = value_or<std::vector<std::string>>(table, "modes", {});
  compare.ranks = value_or<std::vector<std::int64_t>>(table, "ranks", {}, {.min = 1, .max = kMaxRanks});
  compare.repeats = value_or<std::int64_t>(table, "repeats", compare.repeats, {.min = 1, .max = 1 << 20});
  table.finish();
  const std::int64_t per_rank = scenario.training.micro_batch_size * scenario.num_microbatches();
  const std::int64_t tp = scenario.parallel.tensor_model_parallel_size;
  for (const std::int64_t ranks : compare.ranks)
    if (ranks / tp > kMaxGlobalBatch / per_rank)
      throw table.failure("ranks", "expected a global batch of at most " + number(kMaxGlobalBatch) +
                                       " sequences, got " + number(per_rank) + " a rank on " + number(ranks) +
                                       " ranks");
  return compare;
}

void check_device(TomlTable& root, const Scenario& scenario) {
  std::int64_t ranks = scenario.parallel.ranks();
  for (const std::int64_t compared : scenario.compare.ranks) ranks = std::max(ranks, compared);
  const std::int64_t limit = scenario.cluster.ranks_per_device;
  if (limit > 0) ranks = std::min(ranks, limit);
  if (ranks > kMaxRanksOnDevice)
    throw root.section("cluster").failure(
        "ranks_per_device",
        "expected at most " + number(kMaxRanksOnDevice) + " ranks on one device, got " +
            (limit > 0 ? number(ranks) : "all " + number(ranks) + "; set it to 1 for a rank a device"));
}

// An upper bound of what one rank can be asked to hold, in doubles because it is what must not overflow.
void check_size(TomlTable& root, const Scenario& scenario) {
  const Transformer& model = scenario.model;
  const std::int64_t tokens = scenario.training.micro_batch_size * model.seq_length;
  TomlTable training = root.section("training");
  if (tokens > kMaxTokens)
    throw training.failure("micro_batch_size", "expected at most " + number(kMaxTokens) +
                                                   " tokens a micro-batch (micro_batch_size x seq_length), got " +
                                                   number(tokens));
  if (scenario.num_microbatches() > kMaxLayerCalls / model.num_layers)
    throw training.failure("global_batch_size",
                           "expected at most " + number(kMaxLayerCalls) + " layers x micro-batches in a step, got " +
                               number(model.num_layers) + " x " + number(scenario.num_microbatches()));
  const double h = double(model.hidden_size), f = double(model.ffn_hidden_size), fc1 = double(model.fc1_size());
  const double v = double(model.padded_vocab_size) * (model.untie_embeddings_and_output_weights ? 2 : 1);
  const double parameters = (v + double(model.max_position_embeddings)) * h +
                            double(model.num_layers) * (4 * h * h + h * (f + fc1) + 9 * h + fc1);
  const double activations = double(tokens) * (double(model.num_layers) * (24 * h + 2 * f + 2 * fc1) + 2 * v);
  if (8 * (4 * parameters + activations) > kMaxBytes)
    throw root.section("model").failure("hidden_size",
                                        "expected parameters and activations of at most 2^60 bytes, got more");
}

std::string resolved(const std::string& path, const std::filesystem::path& folder) {
  return path.empty() ? path : (folder / path).lexically_normal().string();
}

Scenario scenario_of(TomlTable root, const std::string& file) {
  Scenario scenario;
  scenario.name = value_or<std::string>(root, "name", std::filesystem::path(file).stem().string());
  scenario.platform = value_or<std::string>(root, "platform", "");
  const bool empty = root.empty();
  TomlTable model = root.section("model"), cluster = root.section("cluster"), parallel = root.section("parallel");
  TomlTable overlap = root.section("overlap"), training = root.section("training"), compare = root.section("compare");
  // Before a missing [model], which a misspelt one causes.
  root.finish();
  if (!model.present())
    throw model.failure("preset", std::string("expected a preset, or num_layers, hidden_size, num_attention_heads, "
                                              "seq_length and vocab_size, got ") +
                                      (empty ? "an empty file" : "no [model] section"));
  scenario.parallel = read_parallel(parallel);
  scenario.model = read_model(std::move(model), scenario.parallel);
  check_tensor_parallel(parallel, scenario.model, scenario.parallel);
  scenario.cluster = read_cluster(std::move(cluster));
  scenario.overlap = read_overlap(std::move(overlap));
  scenario.training = read_training(std::move(training), scenario.parallel, scenario.model);
  check_size(root, scenario);
  scenario.compare = read_compare(std::move(compare), scenario);
  check_device(root, scenario);
  return scenario;
}

}  // namespace

Scenario parse_scenario(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  return scenario_of(parse_toml(text, name, overrides), name);
}

Scenario read_scenario(const std::string& path, const std::vector<std::string>& overrides) {
  Scenario scenario = scenario_of(read_toml(path, overrides), path);
  scenario.file = path;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  scenario.platform = resolved(scenario.platform, folder);
  scenario.training.data = resolved(scenario.training.data, folder);
  scenario.training.checkpoint_dir = resolved(scenario.training.checkpoint_dir, folder);
  return scenario;
}

}  // namespace stretto
