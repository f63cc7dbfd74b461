#include "model/model_json.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace stretto {

nlohmann::ordered_json model_json(const Transformer& model) {
  // A field more or less does not compile.
  const auto& [num_layers, hidden_size, num_attention_heads, ffn_hidden_size, seq_length, max_position_embeddings,
               vocab_size, padded_vocab_size, normalization, swiglu, position_embedding_type, rotary_base, rope_scaling,
               num_query_groups, add_bias_linear, untie_embeddings_and_output_weights, hidden_dropout,
               attention_dropout] = model;
  const auto& [interpolation_factor, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings] =
      rope_scaling;
  using Json = nlohmann::ordered_json;
  const auto where = [](bool acts, auto value) { return acts ? Json(value) : Json(); };
  const bool has_rope = position_embedding_type == PositionEmbedding::rope;
  const bool is_llama3 = has_rope && rope_scaling.is_llama3();
  return {{"num_layers", num_layers},
          {"hidden_size", hidden_size},
          {"num_attention_heads", num_attention_heads},
          {"num_query_groups", num_query_groups > 0 ? num_query_groups : num_attention_heads},
          {"ffn_hidden_size", ffn_hidden_size},
          {"seq_length", seq_length},
          {"max_position_embeddings", max_position_embeddings},
          {"vocab_size", vocab_size},
          {"padded_vocab_size", padded_vocab_size},
          {"normalization", name_of(normalization)},
          {"swiglu", swiglu},
          {"position_embedding_type", name_of(position_embedding_type)},
          {"rotary_base", where(has_rope, rotary_base)},
          {"rotary_seq_len_interpolation_factor", where(has_rope && rope_scaling.is_linear(), interpolation_factor)},
          {"use_rope_scaling", where(has_rope, is_llama3)},
          {"rope_scaling_factor", where(is_llama3, factor)},
          {"rope_scaling_low_freq_factor", where(is_llama3, low_freq_factor)},
          {"rope_scaling_high_freq_factor", where(is_llama3, high_freq_factor)},
          {"rope_scaling_original_max_position_embeddings", where(is_llama3, original_max_position_embeddings)},
          {"add_bias_linear", add_bias_linear},
          {"untie_embeddings_and_output_weights", untie_embeddings_and_output_weights},
          {"hidden_dropout", hidden_dropout},
          {"attention_dropout", attention_dropout},
          {"parameters", parameter_count(model)}};
}

std::string model_text(const Transformer& model) {
  constexpr std::size_t kWidth = 120;
  std::string text, line = "model:";
  const auto items = model_json(model);
  for (const auto& [key, value] : items.items()) {
    if (value.is_null()) continue;
    const std::string item = " " + key + " = " + value.dump() + (key == "parameters" ? "" : ",");
    if (line.size() + item.size() > kWidth) text += std::exchange(line, "      ") + "\n";
    line += item;
  }
  return text + line + "\n";
}

}  // namespace stretto
