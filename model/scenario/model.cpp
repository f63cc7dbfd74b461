#include "model/scenario/hf_config.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

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

// Keys are Megatron-LM's, and of what it has no flag for Hugging Face's with "rope_scaling_" before them.
void read_rope_scaling(TomlTable& table, Transformer& model) {
  RopeScaling& scaling = model.rope_scaling;
  const auto needs = [&](const char* key, bool condition, const std::string& expected) {
    if (table.has(key) && !condition) throw table.failure(key, "expected " + expected + " as well");
  };
  const bool is_rope = model.position_embedding_type == PositionEmbedding::rope;
  const Numbers factors{.min = 0, .max = 1e6, .above_min = true};
  const auto number_of = [&](const char* key, double& value) { value = value_or<double>(table, key, value, factors); };
  constexpr const char *kUse = "use_rope_scaling", *kLinear = "rotary_seq_len_interpolation_factor";
  for (const char* key : {kUse, kLinear}) needs(key, is_rope, "position_embedding_type = \"rope\"");
  constexpr double kFactor = 8;  // Llama 3.1's, and Megatron-LM's default
  const bool was_used = scaling.is_llama3(), is_used = value_or<bool>(table, kUse, was_used);
  if (!is_used) scaling = {.interpolation_factor = scaling.interpolation_factor};
  if (is_used && !was_used) scaling.factor = kFactor;
  for (const char* key : {"rope_scaling_factor", "rope_scaling_low_freq_factor", "rope_scaling_high_freq_factor",
                          "rope_scaling_original_max_position_embeddings"})
    needs(key, is_used, "use_rope_scaling = true");
  number_of("rope_scaling_factor", scaling.factor);
  number_of("rope_scaling_low_freq_factor", scaling.low_freq_factor);
  number_of("rope_scaling_high_freq_factor", scaling.high_freq_factor);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor))
    throw table.failure(
        table.has("rope_scaling_high_freq_factor") ? "rope_scaling_high_freq_factor" : "rope_scaling_low_freq_factor",
        "expected a high_freq_factor above the low_freq_factor");
  scaling.original_max_position_embeddings =
      value_or<std::int64_t>(table, "rope_scaling_original_max_position_embeddings",
                             scaling.original_max_position_embeddings, {.min = 1, .max = kMaxTokens});
  number_of(kLinear, scaling.interpolation_factor);
  if (scaling.is_linear() && scaling.is_llama3())
    throw table.failure(table.has(kLinear) ? kLinear : kUse, "expected it or the other scaling of rope, got both");
}

}  // namespace

Transformer read_model(TomlTable table, const Parallel& parallel, const std::filesystem::path& folder) {
  Transformer model;
  std::int64_t sliding_window = 0;
  std::string hf_file;
  const bool has_preset = table.has("preset");
  if (has_preset) model = preset(choice_or(table, "preset", "", preset_names()));
  if (const auto given = table.find<std::string>("hf_config")) {
    if (has_preset) throw table.failure("hf_config", "expected it or a preset, got both");
    hf_file = (folder / *given).lexically_normal().string();
    const HfConfig config = read_hf_config(hf_file);
    model = config.model;
    sliding_window = config.sliding_window;
  }
  const bool from_preset = has_preset || !hf_file.empty();
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
  read_rope_scaling(table, model);
  const Numbers probability{.min = 0, .max = 1, .below_max = true};
  model.hidden_dropout = value_or<double>(table, "hidden_dropout", model.hidden_dropout, probability);
  model.attention_dropout = value_or<double>(table, "attention_dropout", model.attention_dropout, probability);
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
  if (sliding_window > 0 && model.seq_length > sliding_window)
    throw input_error(hf_file + ": sliding_window: expected at least seq_length " + number(model.seq_length) +
                      ", which it then leaves alone, got " + number(sliding_window) +
                      "; [model] seq_length of the scenario can be less");
  return model;
}

}  // namespace stretto
