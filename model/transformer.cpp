#include "model/transformer.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/values_of.hpp"

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

Transformer llama(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t vocab, std::int64_t seq, double rotary_base) {
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

// Heads have 128 channels whatever the width of the model, and q and k have norms.
Transformer qwen3(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t heads, bool is_tied) {
  Transformer model = llama(layers, hidden, ffn, heads, 8, 151936, 4096, 1e6);
  model.max_position_embeddings = 40960;
  model.kv_channels = 128;
  model.qk_layernorm = true;
  model.norm_epsilon = 1e-6;
  model.untie_embeddings_and_output_weights = !is_tied;
  return model;
}

// The dense model's ffn is the width of an expert unless `expert_ffn` is given.
Transformer with_experts(Transformer model, std::int64_t experts, std::int64_t topk, std::int64_t expert_ffn = 0) {
  model.experts.num_moe_experts = experts;
  model.experts.moe_router_topk = topk;
  model.experts.moe_ffn_hidden_size = expert_ffn;
  return model;
}

Transformer mixtral(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t heads,
                    std::int64_t positions) {
  Transformer model = llama(layers, hidden, ffn, heads, 8, 32000, 4096, 1e6);
  model.max_position_embeddings = positions;
  return with_experts(model, 8, 2);
}

Transformer qwen3_moe(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t expert_ffn,
                      std::int64_t heads) {
  Transformer model = qwen3(layers, hidden, ffn, heads, false);
  model.num_query_groups = 4;
  return with_experts(model, 128, 8, expert_ffn);
}

// The first layers have a dense MLP; `shared` experts that every token goes through are one.
Transformer deepseek(Transformer model, std::int64_t q_lora_rank, std::int64_t dense_layers, std::int64_t experts,
                     std::int64_t topk, std::int64_t expert_ffn, std::int64_t shared) {
  model.latent.multi_latent_attention = model.qk_layernorm = true;
  model.latent.q_lora_rank = q_lora_rank;
  model = with_experts(model, experts, topk, expert_ffn);
  std::vector<std::int64_t>& freq = model.experts.moe_layer_freq;
  freq.assign(static_cast<std::size_t>(model.num_layers), 1);
  std::fill_n(freq.begin(), dense_layers, 0);
  model.experts.moe_shared_expert_intermediate_size = shared * expert_ffn;
  return model;
}

Transformer deepseek_v2_lite() {
  Transformer model = deepseek(llama(27, 2048, 10944, 16, 16, 102400, 4096, 1e4), 0, 1, 64, 6, 1408, 2);
  model.max_position_embeddings = 163840;
  model.norm_epsilon = 1e-6;
  model.experts.moe_router_pre_softmax = true;
  return model;
}

Transformer deepseek_v3() {
  Transformer model = deepseek(llama(61, 7168, 18432, 128, 128, 129280, 4096, 1e4), 1536, 3, 256, 8, 2048, 1);
  model.max_position_embeddings = 163840;
  model.norm_epsilon = 1e-6;
  model.experts.moe_router_score_function = RouterScore::sigmoid;
  model.experts.moe_router_enable_expert_bias = true;
  model.experts.moe_router_topk_scaling_factor = 2.5;
  model.experts.moe_router_num_groups = 8;
  model.experts.moe_router_group_topk = 4;
  return model;
}

Transformer moonlight() {
  Transformer model = deepseek(llama(27, 2048, 11264, 16, 16, 163840, 8192, 5e4), 0, 1, 64, 6, 1408, 2);
  model.experts.moe_router_score_function = RouterScore::sigmoid;
  model.experts.moe_router_enable_expert_bias = true;
  model.experts.moe_router_topk_scaling_factor = 2.446;
  return model;
}

Transformer gpt_oss(std::int64_t layers, std::int64_t experts) {
  Transformer model = with_experts(llama(layers, 2880, 2880, 64, 8, 201088, 4096, 1.5e5), experts, 4);
  model.kv_channels = 64;
  model.max_position_embeddings = 131072;
  model.sliding_window = 128;
  model.window_attn_skip_freq = {2};
  model.softmax_type = SoftmaxType::learnable;
  model.add_qkv_bias = true;
  model.left_out = {"biases of attention's output, of the router and of experts are left out",
                    "the gate is clamped and its up part begins at 1 (clamped quick-GELU), which moves as many bytes"};
  return model;
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
// Qwen3: arXiv 2505.09388, tables 1 and 2, and the released config.json; pre-trained on 4,096 tokens in its first two
// stages. Mixtral: Jiang et al., arXiv 2401.04088, table 1, and the released config.json; sequences of 4,096 tokens are
// those of Megatron-Bridge's recipes. DeepSeek-V2-Lite: arXiv 2405.04434, appendix B; DeepSeek-V3: arXiv 2412.19437,
// 4.2, without multi-token prediction; Moonlight: arXiv 2502.16982, table 1; and their config.json. They were
// pre-trained on 4,096 (Moonlight 8,192) tokens without YaRN, which stretches positions afterwards. gpt-oss: arXiv
// 2508.10925, table 1, and the released config.json, with sequences of 4,096 tokens and without YaRN.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"gpt2-124m", gpt(12, 768, 12, 1024)},
      {"gpt2-355m", gpt(24, 1024, 16, 1024)},
      {"gpt2-774m", gpt(36, 1280, 20, 1024)},
      {"gpt2-1558m", gpt(48, 1600, 25, 1024)},
      {"gpt3-175b", gpt(96, 12288, 96, 2048)},
      {"llama2-7b", llama(32, 4096, 11008, 32, 32, 32000, 4096, 1e4)},
      {"llama3-8b", llama(32, 4096, 14336, 32, 8, 128256, 8192, 5e5)},
      {"llama3-70b", llama(80, 8192, 28672, 64, 8, 128256, 8192, 5e5)},
      {"llama3-405b", llama(126, 16384, 53248, 128, 8, 128256, 8192, 5e5)},
      {"qwen3-0.6b", qwen3(28, 1024, 3072, 16, true)},
      {"qwen3-8b", qwen3(36, 4096, 12288, 32, false)},
      {"mixtral-8x7b", mixtral(32, 4096, 14336, 32, 32768)},
      {"mixtral-8x22b", mixtral(56, 6144, 16384, 48, 65536)},
      {"qwen3-30b-a3b", qwen3_moe(48, 2048, 6144, 768, 32)},
      {"qwen3-235b-a22b", qwen3_moe(94, 4096, 12288, 1536, 64)},
      {"deepseek-v2-lite", deepseek_v2_lite()},
      {"deepseek-v3", deepseek_v3()},
      {"moonlight-16b-a3b", moonlight()},
      {"gpt-oss-20b", gpt_oss(24, 32)},
      {"gpt-oss-120b", gpt_oss(36, 128)},
  };
  return all;
}

}  // namespace

const char* name_of(SoftmaxType type) { return name_in({"vanilla", "off-by-one", "learnable"}, type); }
const char* name_of(NormPlaces places) { return name_in({"pre", "post", "both"}, places); }
const char* name_of(Normalization normalization) { return name_in({"LayerNorm", "RMSNorm"}, normalization); }
const char* name_of(LoadBalancing balancing) {
  return name_in({"none", "aux_loss", "seq_aux_loss", "global_aux_loss"}, balancing);
}
const char* name_of(PositionEmbedding embedding) { return name_in({"learned_absolute", "rope"}, embedding); }

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& one : presets()) names.push_back(one.name);
  return names;
}

Transformer preset(const std::string& name) {
  for (const Preset& one : presets())
    if (name == one.name) return one.model;
  std::string message = "preset: expected one of";
  for (const Preset& one : presets()) message += std::string(&one == &presets().front() ? " " : ", ") + one.name;
  const std::string nearest = nearest_spelling(name, preset_names());
  throw input_error(message + ", got \"" + name + "\"" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

std::vector<LayerSpec> Transformer::layer_kinds() const {
  std::vector<LayerSpec> kinds;
  for (std::int64_t number = 0; number < num_layers; ++number)
    if (std::find(kinds.begin(), kinds.end(), layer(number)) == kinds.end()) kinds.push_back(layer(number));
  return kinds;
}

const char* name_of(AttentionBackend backend) { return name_in({"fused", "unfused"}, backend); }

}  // namespace stretto
