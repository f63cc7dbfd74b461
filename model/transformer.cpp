#include "model/transformer.hpp"

#include "base/error.hpp"
#include "model/schedule/work.hpp"

namespace stretto {
namespace {

Transformer gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t seq) {
  Transformer model;
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.num_attention_heads = heads;
  model.ffn_hidden_size = 4 * hidden;
  model.seq_length = model.max_position_embeddings = seq;
  model.vocab_size = model.padded_vocab_size = 50257;
  return model;
}

struct Preset {
  const char* name;
  std::int64_t layers, hidden, heads, seq;
};

// GPT-2: Radford et al. 2019, table 2; head counts from the released checkpoints' hparams.json. The names count
// parameters as the checkpoints hold them (the paper's table differs: 117M, 345M, 762M, 1542M). GPT-3: Brown et al.,
// arXiv 2005.14165, table 2.1; its alternating sparse attention is taken as dense.
constexpr Preset kPresets[] = {
    {"gpt2-124m", 12, 768, 12, 1024},   {"gpt2-355m", 24, 1024, 16, 1024},  {"gpt2-774m", 36, 1280, 20, 1024},
    {"gpt2-1558m", 48, 1600, 25, 1024}, {"gpt3-175b", 96, 12288, 96, 2048},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& one : kPresets) names.push_back(one.name);
  return names;
}

Transformer preset(const std::string& name) {
  for (const Preset& one : kPresets)
    if (name == one.name) return gpt(one.layers, one.hidden, one.heads, one.seq);
  std::string message = "preset: expected one of";
  for (const Preset& one : kPresets) message += std::string(&one == kPresets ? " " : ", ") + one.name;
  const std::string nearest = nearest_spelling(name, preset_names());
  throw input_error(message + ", got \"" + name + "\"" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

std::vector<Parameter> parameters(const Transformer& model) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  std::vector<Parameter> all;
  const auto matrix = [&](const char* name, std::int64_t layer, std::int64_t rows, std::int64_t cols) {
    all.push_back({name, layer, rows, cols, true});
  };
  const auto vector = [&](const char* name, std::int64_t layer, std::int64_t elements) {
    all.push_back({name, layer, 1, elements, false});
  };
  matrix("wte.weight", -1, model.padded_vocab_size, h);
  matrix("wpe.weight", -1, model.max_position_embeddings, h);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    vector("ln_1.weight", layer, h);
    vector("ln_1.bias", layer, h);
    matrix("qkv.weight", layer, 3 * h, h);
    vector("qkv.bias", layer, 3 * h);
    matrix("proj.weight", layer, h, h);
    vector("proj.bias", layer, h);
    vector("ln_2.weight", layer, h);
    vector("ln_2.bias", layer, h);
    matrix("fc1.weight", layer, f, h);
    vector("fc1.bias", layer, f);
    matrix("fc2.weight", layer, h, f);
    vector("fc2.bias", layer, h);
  }
  vector("ln_f.weight", -1, h);
  vector("ln_f.bias", -1, h);
  return all;
}

std::int64_t parameter_count(const Transformer& model) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  const std::int64_t norms = 4 * h;
  const std::int64_t attention = 3 * h * h + 3 * h + h * h + h;
  const std::int64_t mlp = f * h + f + h * f + h;
  return (model.vocab_size + model.max_position_embeddings) * h + model.num_layers * (norms + attention + mlp) + 2 * h;
}

Flops training_flops_per_sequence(const Transformer& model) {
  const double s = double(model.seq_length), h = double(model.hidden_size), f = double(model.ffn_hidden_size);
  const double layers = double(model.num_layers);
  // One forward pass over the sequence.
  const double linears = s * layers * 2 * (3 * h * h + h * h + 2 * h * f);
  const double head = s * 2 * h * double(model.vocab_size);
  const double padded_head = s * 2 * h * double(model.padded_vocab_size);
  const double attention_matmul = layers * 2 * s * s * h;  // QKᵀ of all heads, every key of every query

  Flops flops;
  flops.model_full_attention = 3 * (linears + head + 2 * attention_matmul);
  flops.model = 3 * (linears + head + attention_matmul);
  // The forward kernel multiplies twice (QKᵀ, PV), the backward kernel five times (QKᵀ again, dV, dP, dQ, dK), each over
  // the part of the square that its blocks touch.
  flops.hardware = 3 * (linears + padded_head) + 7 * causal_attention_share(model.seq_length) * attention_matmul;
  return flops;
}

}  // namespace stretto
