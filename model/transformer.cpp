#include "model/transformer.hpp"

#include "base/error.hpp"
#include "base/values_of.hpp"
#include "model/schedule/work.hpp"

namespace stretto {
namespace {

constexpr Transformer gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t seq) {
  Transformer model;
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.num_attention_heads = heads;
  model.ffn_hidden_size = 4 * hidden;
  model.seq_length = model.max_position_embeddings = seq;
  model.vocab_size = model.padded_vocab_size = 50257;
  return model;
}

constexpr Transformer llama(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t heads,
                            std::int64_t kv_heads, std::int64_t vocab, std::int64_t seq, double rotary_base) {
  Transformer model;
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.ffn_hidden_size = ffn;
  model.num_attention_heads = heads;
  model.num_query_groups = kv_heads;
  model.vocab_size = model.padded_vocab_size = vocab;
  model.seq_length = model.max_position_embeddings = seq;
  model.rotary_base = rotary_base;
  return in_llama_style(model);
}

struct Preset {
  const char* name;
  Transformer model;
};

// GPT-2: Radford et al. 2019, table 2; head counts from the released checkpoints' hparams.json. The names count
// parameters as the checkpoints hold them (the paper's table differs: 117M, 345M, 762M, 1542M). GPT-3: Brown et al.,
// arXiv 2005.14165, table 2.1; its alternating sparse attention is taken as dense. Llama 2: Touvron et al., arXiv
// 2307.09288, table 1 and the released params.json. Llama 3: arXiv 2407.21783, table 3 (layers, width, FFN width,
// heads, key/value heads, RoPE base, vocabulary of 128,000 tokens and 256 special ones), pre-trained on 8192 tokens.
constexpr Preset kPresets[] = {
    {"gpt2-124m", gpt(12, 768, 12, 1024)},
    {"gpt2-355m", gpt(24, 1024, 16, 1024)},
    {"gpt2-774m", gpt(36, 1280, 20, 1024)},
    {"gpt2-1558m", gpt(48, 1600, 25, 1024)},
    {"gpt3-175b", gpt(96, 12288, 96, 2048)},
    {"llama2-7b", llama(32, 4096, 11008, 32, 32, 32000, 4096, 1e4)},
    {"llama3-8b", llama(32, 4096, 14336, 32, 8, 128256, 8192, 5e5)},
    {"llama3-70b", llama(80, 8192, 28672, 64, 8, 128256, 8192, 5e5)},
    {"llama3-405b", llama(126, 16384, 53248, 128, 8, 128256, 8192, 5e5)},
};

}  // namespace

const char* name_of(Normalization normalization) { return name_in({"LayerNorm", "RMSNorm"}, normalization); }
const char* name_of(PositionEmbedding embedding) { return name_in({"learned_absolute", "rope"}, embedding); }

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& one : kPresets) names.push_back(one.name);
  return names;
}

Transformer preset(const std::string& name) {
  for (const Preset& one : kPresets)
    if (name == one.name) return one.model;
  std::string message = "preset: expected one of";
  for (const Preset& one : kPresets) message += std::string(&one == &kPresets[0] ? " " : ", ") + one.name;
  const std::string nearest = nearest_spelling(name, preset_names());
  throw input_error(message + ", got \"" + name + "\"" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

std::vector<Parameter> parameters(const Transformer& model) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size, kv = model.kv_heads() * model.head_dim();
  const std::vector<std::int64_t> gate_and_up = model.swiglu ? std::vector{f, f} : std::vector<std::int64_t>{};
  std::vector<Parameter> all;
  const auto matrix = [&](const std::string& name, std::int64_t layer, std::int64_t rows, std::int64_t cols,
                          Shard shard = Shard::none, const std::vector<std::int64_t>& segments = {}) {
    all.push_back({name, layer, rows, cols, true, shard, segments});
  };
  const auto norm = [&](const std::string& name, std::int64_t layer) {
    all.push_back({name + ".weight", layer, 1, h});
    if (model.normalization == Normalization::layer_norm) all.push_back({name + ".bias", layer, 1, h});
  };
  // A bias is added behind the product: one that is cut by input has its bias on every rank.
  const auto linear = [&](const std::string& name, std::int64_t layer, std::int64_t out, std::int64_t in, Shard shard,
                          const std::vector<std::int64_t>& segments = {}) {
    matrix(name + ".weight", layer, out, in, shard, segments);
    const Shard of_bias = shard == Shard::rows ? Shard::rows : Shard::none;
    if (model.add_bias_linear) all.push_back({name + ".bias", layer, 1, out, false, of_bias, segments});
  };
  matrix("wte.weight", -1, model.padded_vocab_size, h, Shard::rows);
  if (model.position_embedding_type == PositionEmbedding::learned_absolute)
    matrix("wpe.weight", -1, model.max_position_embeddings, h, Shard::columns);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    norm("ln_1", layer);
    linear("qkv", layer, model.qkv_size(), h, Shard::rows, {h, kv, kv});
    linear("proj", layer, h, h, Shard::columns);
    norm("ln_2", layer);
    linear("fc1", layer, model.fc1_size(), h, Shard::rows, gate_and_up);
    linear("fc2", layer, h, f, Shard::columns);
  }
  norm("ln_f", -1);
  if (model.untie_embeddings_and_output_weights) matrix("lm_head.weight", -1, model.padded_vocab_size, h, Shard::rows);
  return all;
}

std::int64_t parameter_count(const Transformer& model) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  const std::int64_t norm = model.normalization == Normalization::layer_norm ? 2 * h : h;
  const std::int64_t weights = model.qkv_size() * h + h * h + model.fc1_size() * h + h * f;
  const std::int64_t biases = model.add_bias_linear ? model.qkv_size() + h + model.fc1_size() + h : 0;
  const std::int64_t vocabulary = model.vocab_size * (model.untie_embeddings_and_output_weights ? 2 : 1);
  const std::int64_t positions =
      model.position_embedding_type == PositionEmbedding::learned_absolute ? model.max_position_embeddings : 0;
  return (vocabulary + positions) * h + model.num_layers * (2 * norm + weights + biases) + norm;
}

const char* name_of(AttentionBackend backend) { return name_in({"fused", "unfused"}, backend); }

double executed_attention_share(AttentionBackend backend, std::int64_t seq) {
  return backend == AttentionBackend::fused ? causal_attention_share(seq) : 1;
}

Flops training_flops_per_sequence(const Transformer& model, bool frozen_base, AttentionBackend backend) {
  const double s = double(model.seq_length), h = double(model.hidden_size), f = double(model.ffn_hidden_size);
  const double layers = double(model.num_layers);
  // One forward pass over the sequence.
  const double linears = s * layers * 2 * h * (double(model.qkv_size()) + h + double(model.fc1_size()) + f);
  const double head = s * 2 * h * double(model.vocab_size);
  const double padded_head = s * 2 * h * double(model.padded_vocab_size);
  const double attention_matmul = layers * 2 * s * s * h;  // QKᵀ of all heads, every key of every query

  Flops flops;
  const double passes = frozen_base ? 2 : 3;  // of products with weights
  flops.model_full_attention = passes * (linears + head) + 3 * 2 * attention_matmul;
  flops.model = passes * (linears + head) + 3 * attention_matmul;
  // The forward kernel multiplies twice (QKᵀ, PV), the backward kernel five times (QKᵀ again, dV, dP, dQ, dK), each
  // over the part of the square that its blocks touch. Unfused attention has kept what QKᵀ becomes.
  const double products = backend == AttentionBackend::fused ? 7 : 6;
  flops.hardware = passes * (linears + padded_head) +
                   products * executed_attention_share(backend, model.seq_length) * attention_matmul;
  return flops;
}

}  // namespace stretto
