#include "interchange/model_shapes.hpp"

#include <cctype>

namespace stretto {
namespace {

// All have RMSNorm, SwiGLU, rotary positions and no biases.
struct Shape {
  const char* family;  // torchtitan's [model] name
  const char* flavor;
  const char* word;  // part of file names, letters and digits only; "": none
  std::int64_t layers, hidden, ffn, heads, groups, vocabulary;
  double rotary_base;
  bool ties = false;
  std::int64_t head_size = 0;  // 0: hidden / heads
};
constexpr Shape kShapes[] = {
    // torchtitan/models/llama3; a width from ffn_dim_multiplier and multiple_of is written as a number.
    {"llama3", "debugmodel", "", 6, 256, 768, 16, 16, 2048, 500000},
    {"llama3", "1B", "llama321b", 16, 2048, 8192, 32, 8, 128256, 500000, true},
    {"llama3", "3B", "llama323b", 28, 3072, 8192, 24, 8, 128256, 500000, true},
    {"llama3", "8B", "llama38b", 32, 4096, 14336, 32, 8, 128256, 500000},
    {"llama3", "8B", "llama318b", 32, 4096, 14336, 32, 8, 128256, 500000},
    {"llama3", "70B", "llama370b", 80, 8192, 28672, 64, 8, 128256, 500000},
    {"llama3", "70B", "llama3170b", 80, 8192, 28672, 64, 8, 128256, 500000},
    {"llama3", "405B", "llama31405b", 126, 16384, 53248, 128, 8, 128256, 500000},
    {"llama3", "405B", "llama3405b", 126, 16384, 53248, 128, 8, 128256, 500000},
    {"llama2", "debugmodel", "", 8, 256, 768, 16, 16, 2048, 10000},
    {"llama2", "7B", "llama27b", 32, 4096, 11008, 32, 32, 32000, 10000},
    {"llama2", "13B", "llama213b", 40, 5120, 13824, 40, 40, 32000, 10000},
    {"llama2", "70B", "llama270b", 80, 8192, 28672, 64, 8, 32000, 10000},
    // Qwen2 and Qwen2.5 (config.json on Hugging Face); q, k and v have biases.
    {"qwen2", "0.5B", "qwen2500m", 24, 896, 4864, 14, 2, 151936, 1000000, true},
    {"qwen2", "0.5B", "qwen205b", 24, 896, 4864, 14, 2, 151936, 1000000, true},
    {"qwen2", "1.5B", "qwen21p5b", 28, 1536, 8960, 12, 2, 151936, 1000000, true},
    {"qwen2", "7B", "qwen27b", 28, 3584, 18944, 28, 4, 152064, 1000000},
    {"qwen2", "72B", "qwen272b", 80, 8192, 29568, 64, 8, 152064, 1000000},
    {"qwen2.5", "0.5B", "qwen25500m", 24, 896, 4864, 14, 2, 151936, 1000000, true},
    {"qwen2.5", "0.5B", "qwen2505b", 24, 896, 4864, 14, 2, 151936, 1000000, true},
    {"qwen2.5", "1.5B", "qwen251p5b", 28, 1536, 8960, 12, 2, 151936, 1000000, true},
    {"qwen2.5", "1.5B", "qwen2515b", 28, 1536, 8960, 12, 2, 151936, 1000000, true},
    {"qwen2.5", "3B", "qwen253b", 36, 2048, 11008, 16, 2, 151936, 1000000, true},
    {"qwen2.5", "7B", "qwen257b", 28, 3584, 18944, 28, 4, 152064, 1000000},
    {"qwen2.5", "14B", "qwen2514b", 48, 5120, 13824, 40, 8, 152064, 1000000},
    {"qwen2.5", "32B", "qwen2532b", 64, 5120, 27648, 40, 8, 152064, 1000000},
    {"qwen2.5", "72B", "qwen2572b", 80, 8192, 29568, 64, 8, 152064, 1000000},
    // torchtitan/models/qwen3; heads have 128 channels whatever the width of the model, and q and k have norms.
    {"qwen3", "debugmodel", "", 8, 256, 3072, 16, 8, 2048, 1000000, true, 128},
    {"qwen3", "0.6B", "qwen306b", 28, 1024, 3072, 16, 8, 151936, 1000000, true, 128},
    {"qwen3", "0.6B", "qwen3600m", 28, 1024, 3072, 16, 8, 151936, 1000000, true, 128},
    {"qwen3", "1.7B", "qwen317b", 28, 2048, 6144, 16, 8, 151936, 1000000, true, 128},
    {"qwen3", "1.7B", "qwen31p7b", 28, 2048, 6144, 16, 8, 151936, 1000000, true, 128},
    {"qwen3", "4B", "qwen34b", 36, 2560, 9728, 32, 8, 151936, 1000000, true, 128},
    {"qwen3", "8B", "qwen38b", 36, 4096, 12288, 32, 8, 151936, 1000000, false, 128},
    {"qwen3", "14B", "qwen314b", 40, 5120, 17408, 40, 8, 151936, 1000000, false, 128},
    {"qwen3", "32B", "qwen332b", 64, 5120, 25600, 64, 8, 151936, 1000000, false, 128},
};

void add(const Shape& shape, Settings& settings) {
  const auto put = [&](const char* key, nlohmann::json value) {
    settings.values.emplace(std::string("model.") + key, std::move(value));
  };
  put("num_layers", shape.layers);
  put("hidden_size", shape.hidden);
  put("ffn_hidden_size", shape.ffn);
  put("num_attention_heads", shape.heads);
  put("num_query_groups", shape.groups);
  put("vocab_size", shape.vocabulary);
  put("normalization", "RMSNorm");
  put("swiglu", true);
  put("add_bias_linear", false);
  put("position_embedding_type", "rope");
  put("rotary_base", shape.rotary_base);
  put("untie_embeddings_and_output_weights", !shape.ties);
  if (std::string_view(shape.family).starts_with("qwen2"))
    settings.approximated.push_back({shape.family, 0, "biases on q, k and v alone are left out: below 1 % of a step"});
  if (shape.head_size == 0) return;
  put("kv_channels", shape.head_size);
  put("qk_layernorm", true);
}

std::string plain_of(std::string_view name) {
  std::string plain;
  for (const unsigned char c : name)
    if (std::isalnum(c) != 0) plain += static_cast<char>(std::tolower(c));
  return plain;
}

}  // namespace

bool add_shape_by_name(std::string_view name, Settings& settings) {
  const std::string plain = plain_of(name);
  const Shape* best = nullptr;
  for (const Shape& shape : kShapes)
    if (shape.word[0] != '\0' && plain.find(shape.word) != std::string::npos)
      if (best == nullptr || std::string_view(shape.word).size() > std::string_view(best->word).size()) best = &shape;
  if (best == nullptr) return false;
  add(*best, settings);
  // Megatron-Bridge's recipes train Llama 3 on 8,192 tokens and the others on 4,096.
  settings.values.emplace("model.seq_length", std::string_view(best->family) == "llama3" ? 8192 : 4096);
  return true;
}

bool add_shape_by_flavor(std::string_view name, std::string_view flavor, Settings& settings) {
  // Flavors with another attention, "8B_flex", have equal sizes.
  const std::string_view size = flavor.substr(0, flavor.find('_'));
  for (const Shape& shape : kShapes)
    if (shape.family == name && shape.flavor == size) {
      add(shape, settings);
      return true;
    }
  return false;
}

std::optional<std::pair<std::string, std::string>> flavor_of(const Transformer& model) {
  const bool is_linear = model.gated_delta.any() || !model.mamba.hybrid_layer_pattern.empty();
  if (model.experts.num_moe_experts > 0 || model.latent.any() || is_linear || !model.swiglu || model.add_bias_linear ||
      model.normalization != Normalization::rms_norm || model.position_embedding_type != PositionEmbedding::rope)
    return std::nullopt;
  for (const Shape& shape : kShapes) {
    const bool has_name = shape.family == std::string_view("llama3") || shape.family == std::string_view("qwen3");
    if (has_name && shape.layers == model.num_layers && shape.hidden == model.hidden_size &&
        shape.ffn == model.ffn_hidden_size && shape.heads == model.num_attention_heads &&
        shape.groups == model.kv_heads() && shape.vocabulary == model.vocab_size &&
        shape.ties != model.untie_embeddings_and_output_weights)
      return std::pair(std::string(shape.family), std::string(shape.flavor));
  }
  return std::nullopt;
}

}  // namespace stretto
