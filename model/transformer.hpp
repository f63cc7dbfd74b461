#pragma once
#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/full_name.hpp"
#include "base/rope_scaling.hpp"
#include "model/experts.hpp"
#include "model/linear_mixers.hpp"

namespace stretto {

enum class Normalization : std::uint8_t { layer_norm, rms_norm };
enum class PositionEmbedding : std::uint8_t { learned_absolute, rope };
// Return Megatron-LM's spellings: "LayerNorm", "RMSNorm"; "learned_absolute", "rope".
// The softmax of attention divides by the sum over keys, or by that plus exp(b) of a sink, where b is 0 or learned, one
// number a head (GPT-OSS; Megatron-LM's --softmax-type). Norms of a sublayer are of its input, of its result before it
// is added to the residual stream (OLMo 2, arXiv 2501.00656), or of both (Gemma 2, arXiv 2408.00118).
enum class SoftmaxType : std::uint8_t { vanilla, off_by_one, learnable };
enum class NormPlaces : std::uint8_t { pre, post, both };
const char* name_of(SoftmaxType type);   // "vanilla", "off-by-one", "learnable"
const char* name_of(NormPlaces places);  // "pre", "post", "both"
const char* name_of(Normalization normalization);
const char* name_of(PositionEmbedding embedding);

// A layer is a sublayer that mixes tokens, the mixer, and then an MLP. Mixers are causal; docs/adding.md says what a
// new one touches. An MLP of kind `none` is a layer without one, which a search for smaller models leaves (Bercovich et
// al., arXiv 2411.19146: "no-op"); `experts` is a mixture (Experts).
// A layer with the mixer `none` has an MLP alone.
enum class MixerKind : std::uint8_t { attention, latent, gated_delta, mamba, none };
enum class MlpKind : std::uint8_t { dense, none, experts };

// The kind of a layer. Layers of equal kind have equal operations: they share blocks, costs and graphs. A field more is
// a kind more wherever it differs (plain.cpp, sweep/family.cpp), and suffix() must name it.
struct LayerSpec {
  MixerKind mixer = MixerKind::attention;
  MlpKind mlp = MlpKind::dense;
  bool in_window = false;  // attention to the keys of a window or chunk alone
  bool has_rope = true;    // where the model has rotary positions
  auto operator<=>(const LayerSpec&) const = default;
  bool has_mlp() const { return mlp != MlpKind::none; }  // of either kind
  bool has_experts() const { return mlp == MlpKind::experts; }
  // On names of blocks that only layers of this kind have: "", ".no_mlp", ".gated_delta.experts",
  // ".experts.window.no_rope". A model has one of `attention` and `latent`.
  std::string suffix() const {
    return suffix_of_parameters() + (in_window ? ".window" : "") + (has_rope ? "" : ".no_rope");
  }
  // On names of units of parameters: layers with an equal one have parameters of equal names and shapes.
  std::string suffix_of_parameters() const {
    const std::string of_mixer = mixer == MixerKind::gated_delta ? ".gated_delta"
                                 : mixer == MixerKind::mamba     ? ".mamba"
                                 : mixer == MixerKind::none      ? ".no_mixer"
                                                                 : "";
    return of_mixer + (!has_mlp() ? ".no_mlp" : has_experts() ? ".experts" : "");
  }
};

// Returns whether a pattern of layers has a layer: {n} has every n-th one, counted from 1 (n, 2n, …); a longer list has
// 0 or 1 for each layer, and its last number counts for all further layers; an empty one has none.
inline bool is_in_pattern(const std::vector<std::int64_t>& pattern, std::int64_t layer) {
  if (pattern.empty()) return false;
  if (pattern.size() == 1) return pattern[0] > 0 && (layer + 1) % pattern[0] == 0;
  return pattern[std::min(static_cast<std::size_t>(layer), pattern.size() - 1)] != 0;
}

// Multi-latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): what a token gives to keys and values is a short vector,
// and with q_lora_rank its queries come from another. A norm is between the products down to such a vector and up to
// the heads. Only a part of queries and keys turns with the position, and all heads share this part of the keys. Fields
// are Megatron-LM's options.
struct LatentAttention {
  bool multi_latent_attention = false;
  std::int64_t q_lora_rank = 0;  // 0: one product makes the queries
  std::int64_t kv_lora_rank = 512;
  std::int64_t qk_head_dim = 128, qk_pos_emb_head_dim = 64;  // the parts of a query or key: fixed, and turned by rope
  std::int64_t v_head_dim = 128;
  YarnScaling yarn = {};

  bool any() const { return multi_latent_attention; }
  std::int64_t kv_down_size() const { return kv_lora_rank + qk_pos_emb_head_dim; }  // rows of kv_down.weight
  bool operator==(const LatentAttention&) const = default;
};

// A decoder-only transformer with a norm before each sublayer. The defaults are GPT-2's style (Radford et al. 2019):
// LayerNorm, GELU (tanh), learned positions, biases, output head tied to the token embedding. Llama's style (Touvron et
// al., arXiv 2302.13971) has RMSNorm, SwiGLU, rotary positions, no biases, a head of its own, and from Llama 3 on
// (arXiv 2407.21783) fewer heads of keys and values than of queries. Fields are named after Megatron-LM's options.
struct Transformer {
  std::int64_t num_layers = 12;
  std::int64_t hidden_size = 768;
  std::int64_t num_attention_heads = 12;
  std::int64_t ffn_hidden_size = 3072;
  std::int64_t seq_length = 1024;               // tokens per sample
  std::int64_t max_position_embeddings = 1024;  // rows of wpe
  std::int64_t vocab_size = 50257;              // as published: parameters and FLOPs count these rows
  std::int64_t padded_vocab_size = 50257;       // rows of wte as allocated (make_vocab_size_divisible_by)

  Normalization normalization = Normalization::layer_norm;
  double norm_epsilon = 1e-5;  // is added to the variance or mean square
  bool swiglu = false;         // the MLP is fc2(silu(gate) ∘ up) with fc1 = [gate; up], of 2 · ffn_hidden_size rows
  PositionEmbedding position_embedding_type = PositionEmbedding::learned_absolute;
  double rotary_base = 10000;  // base of rope's frequencies
  RopeScaling rope_scaling = {};
  std::int64_t num_query_groups = 0;  // heads of k and of v; 0: num_attention_heads
  std::int64_t kv_channels = 0;       // elements of a head; 0: hidden_size / num_attention_heads
  bool qk_layernorm = false;          // q and k of each head go through a norm, with one weight for all heads
  LatentAttention latent = {};        // qk_layernorm is then true, and says that latent vectors have norms
  bool add_bias_linear = true;
  bool untie_embeddings_and_output_weights = false;
  double hidden_dropout = 0;     // applies to the embedding, and to each sublayer's result before the residual addition
  double attention_dropout = 0;  // applies to attention's probabilities

  // Attention to few keys: a query sees `sliding_window` of them, its own among them, or those of its own chunk of
  // `attention_chunk_size` positions (Llama 4); 0: all before it. With window_attn_skip_freq {n} all layers but every
  // n-th one do so, or those with 1 in a list of one for each layer; empty: all layers.
  std::int64_t sliding_window = 0, attention_chunk_size = 0;
  std::vector<std::int64_t> window_attn_skip_freq = {};
  std::vector<std::int64_t> no_rope_freq = {};  // layers without rotary positions (is_in_pattern()); empty: none
  SoftmaxType softmax_type = SoftmaxType::vanilla;
  double attn_logit_softcapping = 0;  // scores become cap · tanh(score / cap); 0: they stay
  bool add_qkv_bias = false;          // q, k and v have biases also without add_bias_linear
  NormPlaces norm_places = NormPlaces::pre;
  bool qk_layernorm_full_width = false;  // norms of qk_layernorm are over all heads together (OLMo 2)

  // Layers of multi-token prediction that the model's config.json has, which are left out here.
  std::int64_t num_nextn_predict_layers = 0;
  // Other parts of its config.json that are left out here, one sentence each: notes of a prediction, and a reason not
  // to execute a step, which would be another model's.
  std::vector<std::string> left_out = {};
  Experts experts = {};
  GatedDelta gated_delta = {};
  Mamba mamba = {};
  std::vector<LayerSpec> layers = {};  // [layer]; empty: as `experts` says, and else LayerSpec{}
  LayerSpec layer(std::int64_t number) const {
    if (!layers.empty()) return layers[static_cast<std::size_t>(number)];
    const bool turns = position_embedding_type != PositionEmbedding::rope || !is_in_pattern(no_rope_freq, number);
    const LayerSpec full{latent.any() ? MixerKind::latent : MixerKind::attention, MlpKind::none, has_window(number),
                         turns};
    switch (mamba.letter(number)) {
      case 'M':
        return {MixerKind::mamba, MlpKind::none};
      case '*':
        return full;
      case '-':
        return {MixerKind::none, MlpKind::dense};
      case 'E':
        return {MixerKind::none, MlpKind::experts};
      default:
        break;
    }
    LayerSpec spec = gated_delta.is_in(number) ? LayerSpec{MixerKind::gated_delta} : full;
    spec.mlp = experts.in_layer(number) ? MlpKind::experts : MlpKind::dense;
    return spec;
  }
  bool limits_keys() const { return sliding_window > 0 || attention_chunk_size > 0; }
  bool has_window(std::int64_t number) const {
    if (!limits_keys() || window_attn_skip_freq.empty()) return limits_keys();
    return is_in_pattern(window_attn_skip_freq, number) != (window_attn_skip_freq.size() == 1);
  }
  // Rules for the scores of attention that call for special kernels, in any layer.
  bool has_score_rules() const {
    return limits_keys() || softmax_type != SoftmaxType::vanilla || attn_logit_softcapping > 0;
  }
  bool norms_inputs() const { return norm_places != NormPlaces::post; }
  bool norms_results() const { return norm_places != NormPlaces::pre; }
  std::vector<LayerSpec> layer_kinds() const;  // each kind that occurs, once, in the order of its first layer

  // Widths of a head's queries and keys, and of its values.
  std::int64_t head_dim() const {
    if (latent.any()) return latent.qk_head_dim + latent.qk_pos_emb_head_dim;
    return kv_channels > 0 ? kv_channels : hidden_size / num_attention_heads;
  }
  std::int64_t value_dim() const { return latent.any() ? latent.v_head_dim : head_dim(); }
  std::int64_t attention_size() const { return num_attention_heads * value_dim(); }  // columns of proj.weight
  std::int64_t q_size() const { return num_attention_heads * head_dim(); }
  std::int64_t kv_heads() const { return num_query_groups > 0 ? num_query_groups : num_attention_heads; }
  std::int64_t qkv_size() const { return q_size() + kv_heads() * (head_dim() + value_dim()); }  // rows of qkv.weight
  std::int64_t kv_up_size() const { return num_attention_heads * (latent.qk_head_dim + latent.v_head_dim); }
  bool has_head_norms() const { return qk_layernorm && !latent.any(); }
  std::int64_t norm_heads(std::int64_t heads) const { return qk_layernorm_full_width ? 1 : heads; }  // of q or k
  bool has_qkv_bias() const { return add_bias_linear || add_qkv_bias; }
  std::int64_t rows_of_fc1(std::int64_t ffn) const { return swiglu ? 2 * ffn : ffn; }
  std::int64_t fc1_size() const { return rows_of_fc1(ffn_hidden_size); }  // rows of fc1.weight
  std::int64_t expert_size() const {                                      // width of an expert
    return experts.moe_ffn_hidden_size > 0 ? experts.moe_ffn_hidden_size : ffn_hidden_size;
  }
  // Name of the head's weight: "lm_head.weight", or "wte.weight" when tied.
  const char* head_weight() const { return untie_embeddings_and_output_weights ? "lm_head.weight" : "wte.weight"; }
};

// Returns a model of equal sizes in Llama's style, with as many heads of keys and values as `model` has.
inline Transformer in_llama_style(Transformer model) {
  model.normalization = Normalization::rms_norm;
  model.swiglu = true;
  model.position_embedding_type = PositionEmbedding::rope;
  model.add_bias_linear = false;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

// Returns the model of a preset: "gpt2-124m", "gpt3-175b", "llama3-8b", … Throws Error(input) naming the nearest
// preset.
Transformer preset(const std::string& name);
std::vector<std::string> preset_names();

// How tensor parallelism cuts a parameter (Shoeybi et al., arXiv 1909.08053): column-parallel layers (qkv, fc1, wte,
// lm_head) by output, row-parallel ones (proj, fc2) by input, and wpe by columns, so that the embeddings of all ranks
// add up (Megatron-LM has all of wpe on every rank).
enum class Shard : std::uint8_t {
  none,     // every rank has the whole parameter
  rows,     // rows of a [out, in] matrix; elements of its bias
  columns,  // columns of a [out, in] matrix
};

// One learnable array. `layer` is -1 outside the layers. Order of `parameters()` is registration order: wte, wpe,
// layers, final norm, lm_head; gradients become ready in about the reverse of it.
struct Parameter {
  std::string name;  // within a layer: "qkv.weight"; full_name() adds "h.<layer>."
  std::int64_t layer = -1;
  std::int64_t rows = 1, cols = 1;
  bool decayed = false;  // weight decay applies to matrices only (GPT-2, nanoGPT)
  Shard shard = Shard::none;
  // Rows or columns of the segments that `shard` cuts separately (q, k, v; gate, up): every rank gets its share of each
  // segment. Empty: one segment.
  std::vector<std::int64_t> segments = {};
  // Every tensor-parallel rank has all of the parameter and uses it only for its own heads, so the ranks' gradients add
  // up.
  bool is_for_heads = false;
  std::int64_t experts = 0;  // rows are those of this number of experts in order; 0: of none
  std::int64_t elements() const { return rows * cols; }
  std::string full_name() const { return stretto::full_name(layer, name); }
};
// Shapes are [out, in] (PyTorch's Linear). Names: wte.weight [padded V,H], wpe.weight [P,H]; per layer ln_1.weight,
// ln_1.bias, qkv.weight [qkv_size,H] (rows of q, then k, then v), qkv.bias, q_norm.weight [head_dim], q_norm.bias,
// k_norm.weight, k_norm.bias, proj.weight [H,attention_size], proj.bias, ln_2.weight, ln_2.bias, fc1.weight
// [fc1_size,H] (rows of the gate, then up, under swiglu), fc1.bias, fc2.weight [H,F], fc2.bias; ln_f.weight, ln_f.bias,
// lm_head.weight [padded V,H]. Multi-latent attention has in place of qkv q_down.weight [q_lora_rank,H], q_norm.weight,
// q_up.weight [q_size,q_lora_rank], or without that rank q.weight [q_size,H], and kv_down.weight [kv_down_size,H] (the
// latent vector, then the shared key), kv_norm.weight [kv_lora_rank], kv_up.weight [kv_up_size,kv_lora_rank] (rows by
// head: the fixed part of its key, then its value). A layer of E experts, each F wide, has in place of fc1 and fc2
// router.weight [E,H], experts.fc1.weight [E·fc1 of an expert,H], experts.fc2.weight [E·H,F], and of a shared one
// shared.fc1.weight, shared.fc2.weight, shared.gate.weight [1,H]. The gated delta rule and Mamba-2 have in place of qkv
// and proj in_proj.weight, conv.weight [channels,taps], conv.bias, a_log, dt_bias, skip [heads], out_norm.weight and
// out_proj.weight. Vectors have rows = 1. Absent: wpe with rope, biases of norms with RMSNorm, other biases without
// add_bias_linear, q_norm and k_norm without qk_layernorm, ln_2, fc1 and fc2 in layers without an MLP, lm_head when
// tied. More: sinks [heads] with softmax_type learnable; proj_norm.weight and fc2_norm.weight with norms of results,
// and then with norm_places `post` no ln_1 and ln_2; qkv.bias with add_qkv_bias. With qk_layernorm_full_width q_norm
// and k_norm are as wide as q and k. The list follows from the graphs of the layers (model/layers).
std::vector<Parameter> parameters(const Transformer& model);

// Returns the arrays that are no parameters, because no gradient changes them, but are saved with them: of each layer
// with experts router.bias [1,E] where experts have a bias. They are kept in f32 or wider on every rank.
std::vector<Parameter> buffers(const Transformer& model);

// Returns the number of distinct learnable numbers: vocabulary not padded, tied embedding counted once. GPT-2 124M:
// 124,439,808; Llama 3 8B: 8,030,261,248.
std::int64_t parameter_count(const Transformer& model);
// Returns the number of parameters that one token meets: of experts only the moe_router_topk that it goes through.
std::int64_t active_parameter_count(const Transformer& model);

// Attention is one operation that keeps no scores (FlashAttention), or separate operations for products, softmax and
// dropout (Megatron-LM's --attention-backend).
enum class AttentionBackend : std::uint8_t { fused, unfused };
const char* name_of(AttentionBackend backend);

}  // namespace stretto
