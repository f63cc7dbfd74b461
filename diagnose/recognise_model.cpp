#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "diagnose/recognition.hpp"

namespace stretto::diagnose {
namespace {

// A product that the backward pass repeats has twice as many forward products as gradients; of fc1 in two halves, of
// which one is repeated, it is one and a half times.
constexpr double kWhole = 1.75, kHalf = 1.25;

double repetition(const SeenWeight* weight) {
  return weight == nullptr || weight->gradients <= 0 ? 1 : weight->forward / weight->gradients;
}

}  // namespace

// The size of the residual stream is a side of each dense weight.
void Recognition::find_sizes() {
  for (const Evidence& rank : ranks_) {
    if (tokens_ == 0) tokens_ = rank.tokens;
    const SeenAttention& a = rank.attention;
    const double forward = attention_.forward + a.forward, backward = attention_.backward + a.backward;
    if (attention_.dim == 0) attention_ = a;
    attention_.forward = forward;
    attention_.backward = backward;
    if (experts_.experts == 0) experts_ = rank.experts;
    for (const SeenWeight& w : rank.weights) {
      auto same = std::find_if(weights_.begin(), weights_.end(),
                               [&](const SeenWeight& o) { return o.in == w.in && o.out == w.out; });
      if (same == weights_.end()) same = weights_.insert(same, SeenWeight{w.in, w.out});
      same->forward += w.forward;
      same->gradients += w.gradients;
    }
  }
  if (weights_.empty() || tokens_ < 1)
    refuse(
        "has no products of weights with shapes; expected a trace with record_shapes=True of PyTorch's profiler, or a "
        "scenario to compare with");
  std::map<std::int64_t, double> count_of;
  for (const SeenWeight& w : weights_) {
    const double count = std::max(w.gradients, 1.);
    count_of[w.in] += count;
    if (w.out != w.in) count_of[w.out] += count;
  }
  for (const auto& [size, count] : count_of)
    if (hidden_ == 0 || count > count_of[hidden_]) hidden_ = size;
  set("model", "hidden_size", hidden_, fmt::format("a side of every weight; a micro-batch has {} rows", tokens_));
}

// Weights of attention's result and of the MLP's end in the residual stream; those of their inputs begin there.
void Recognition::find_heads() {
  const SeenAttention& a = attention_;
  const std::int64_t context = a.heads * a.value_dim;
  for (const SeenWeight& w : weights_) {
    if (w.out != hidden_) continue;
    // Ranks that exchange heads for tokens have fewer of them in attention.
    const bool is_result = context > 0 && (w.in == context || w.in == context * cp_);
    if (is_result && proj_ == nullptr)
      proj_ = &w;
    else if (fc2_ == nullptr || w.gradients > fc2_->gradients)
      fc2_ = &w;
  }
  if (proj_ == nullptr && context == 0) {
    // Without attention's shapes the smaller weight is that of its result.
    for (const SeenWeight& w : weights_)
      if (w.out == hidden_ && &w != fc2_ && (proj_ == nullptr || w.gradients > proj_->gradients)) proj_ = &w;
    if (proj_ != nullptr && fc2_ != nullptr && proj_->in > fc2_->in) std::swap(proj_, fc2_);
  }
  if (proj_ == nullptr) refuse("attention's result has no product with a shape; expected a layer with attention");
  std::int64_t heads = a.dim > 0 ? proj_->in / std::max<std::int64_t>(a.value_dim, 1) : 0, groups = a.kv_heads,
               dim = a.dim;
  for (const SeenWeight& w : weights_) {
    if (w.in != hidden_ || (fc2_ != nullptr && (w.out == fc2_->in || w.out == 2 * fc2_->in))) continue;
    if (w.out > proj_->in && w.out <= 3 * proj_->in && (w.out - proj_->in) % 2 == 0 &&
        (dim == 0 || w.out == proj_->in + 2 * std::max<std::int64_t>(groups, 1) * dim ||
         (cp_ > 1 && (w.out - proj_->in) % (2 * dim) == 0)))
      qkv_ = qkv_ == nullptr || w.gradients > qkv_->gradients ? &w : qkv_;
  }
  if (dim == 0) {
    const std::int64_t keys = qkv_ == nullptr ? proj_->in : (qkv_->out - proj_->in) / 2;
    dim = proj_->in % 128 == 0 && keys % 128 == 0 ? 128 : 64;
    heads = proj_->in / dim;
    groups = keys / dim;
    found_.unknown.push_back(fmt::format("kv_channels: attention has no shapes; {} is assumed", dim));
  } else if (qkv_ != nullptr) {
    groups = (qkv_->out - proj_->in) / (2 * dim);
  }
  set("model", "num_attention_heads", heads * tp_, fmt::format("{} a rank", heads));
  set("model", "num_query_groups", std::max<std::int64_t>(groups, 1) * tp_, fmt::format("{} a rank", groups));
  set("model", "kv_channels", dim, "the width of a head");
  if (a.dim > 0 && a.heads > 0 && cp_ > 1 && a.heads * cp_ == heads)
    set("parallel", "cp_comm_type", std::string("\"a2a\""), "attention has all tokens of some heads");
}

void Recognition::find_layers() {
  for (const SeenWeight& w : weights_) {
    if (w.in != hidden_ || &w == qkv_ || w.out == experts_.experts) continue;
    if (fc2_ != nullptr && (w.out == fc2_->in || w.out == 2 * fc2_->in))
      fc1_ = fc1_ == nullptr || w.gradients > fc1_->gradients ? &w : fc1_;
    else if (w.out > hidden_ / tp_ && (head_ == nullptr || w.out > head_->out))
      head_ = &w;
  }
  double losses = 0;
  for (const Evidence& rank : ranks_) {
    micro_batches_ = std::max({micro_batches_, rank.embeddings, rank.losses});
    losses += rank.losses;
  }
  if (is_own_ && losses == 0) head_ = nullptr;
  if (micro_batches_ == 0 && head_ != nullptr) micro_batches_ = head_->gradients;
  // Attention's result may have the shape of the MLP's.
  double gradients = proj_->gradients;
  if (fc2_ == nullptr && experts_.experts == 0) gradients /= 2;
  if (qkv_ != nullptr && qkv_->gradients > 0) gradients = std::min(gradients, qkv_->gradients);
  if (micro_batches_ < 1) {
    found_.unknown.push_back("num_layers: the traced ranks have no embedding and no head, which count micro-batches");
    return;
  }
  const double layers = gradients / micro_batches_ / std::min(1., traced_replicas()) / std::max(1., traced_replicas());
  layers_ = std::max<std::int64_t>(1, std::llround(layers));
  set("model", "num_layers", layers_, fmt::format("{:.0f} gradients of attention's weights", gradients));
  if (traced_replicas() < 1)
    found_.unknown.push_back(
        fmt::format("num_layers of other stages: ranks of {} stages are traced, and the others are taken for equal",
                    ranks_.size()));
}

void Recognition::find_style() {
  const auto any = [&](auto member) {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const Evidence& rank) { return rank.*member; });
  };
  const std::int64_t width = fc2_ == nullptr ? proj_->in : fc2_->in;
  const bool is_gated = any(&Evidence::has_gates) || (fc1_ != nullptr && fc1_->out == 2 * width);
  if (experts_.experts == 0 || fc2_ != nullptr)
    set("model", "ffn_hidden_size", width * tp_, "products of the MLP");
  else
    for (const SeenWeight& w : experts_.weights)
      if (w.out == hidden_) set("model", "ffn_hidden_size", w.in * etp_, "products of experts; there are no others");
  std::int64_t vocabulary = head_ == nullptr ? 0 : head_->out * tp_;
  for (const Evidence& rank : ranks_)
    if (rank.vocabulary > 0) vocabulary = rank.vocabulary;
  if (vocabulary > 0)
    set("model", "vocab_size", vocabulary, "rows of the embedding or head, padded ones too");
  else
    found_.unknown.push_back("vocab_size: the traced ranks have neither embedding nor head");
  set("model", "swiglu", std::string(is_gated ? "true" : "false"), "the MLP's products and activation");
  const bool is_rms = any(&Evidence::has_rms_norm);
  if (is_rms || any(&Evidence::has_layer_norm))
    set("model", "normalization", std::string(is_rms ? "\"RMSNorm\"" : "\"LayerNorm\""), "kernels of norms");
  else
    found_.unknown.push_back("normalization: no kernel is a norm by its name");
  const bool has_rope = any(&Evidence::has_rope);
  if (is_own_ || has_rope)
    set("model", "position_embedding_type", std::string(has_rope ? "\"rope\"" : "\"learned_absolute\""), "kernels");
  else
    found_.unknown.push_back("position_embedding_type: no kernel turns queries and keys by its name");
  set("model", "add_bias_linear", std::string(any(&Evidence::has_biases) && experts_.experts == 0 ? "true" : "false"),
      "products that add a bias");
  if (any(&Evidence::has_head_norms)) set("model", "qk_layernorm", std::string("true"), "norms of heads");
  set("model", "untie_embeddings_and_output_weights", std::string(is_rms ? "true" : "false"),
      "as models with such norms have it; a trace does not say it");
}

void Recognition::find_recomputation() {
  const SeenWeight* mlp = fc1_;
  if (mlp == nullptr)
    for (const SeenWeight& w : experts_.weights)
      if (w.in == hidden_) mlp = &w;
  const SeenWeight* input = qkv_ != nullptr ? qkv_ : nullptr;
  const bool layer = repetition(input) >= kWhole, feed_forward = repetition(mlp) >= kWhole,
             core = attention_.backward > 0 && attention_.forward / attention_.backward >= kWhole,
             halves = repetition(mlp) >= kHalf;
  std::string granularity = "none", modules;
  if (layer && (feed_forward || core))
    granularity = "full";
  else if (core || feed_forward) {
    granularity = "selective";
    if (core) modules += "\"core_attn\"";
    if (feed_forward) modules += (modules.empty() ? "" : ", ") + std::string(fc1_ != nullptr ? "\"mlp\"" : "\"moe\"");
  } else if (halves || repetition(proj_) >= kWhole) {
    granularity = "selective_op";
  }
  set("training", "recompute_granularity", '"' + granularity + '"',
      fmt::format("forward products over gradients: {:.2f} of attention's input, {:.2f} of the MLP's",
                  repetition(input), repetition(mlp)));
  if (!modules.empty()) set("training", "recompute_modules", "[" + modules + "]", "what is repeated");
  // Products and messages of activations have the type of the model; gradients may have another.
  int bytes = 0;
  for (const Evidence& rank : ranks_) bytes = std::max(bytes, rank.product_bytes);
  if (bytes == 2 || bytes == 4)
    set("training", "precision", std::string(bytes == 2 ? "\"bf16\"" : "\"fp32\""), "operands of products");
  else
    found_.unknown.push_back(bytes == 1
                                 ? "precision: products have operands of 8 bits, and the recipe of scales is not said"
                                 : "precision: no product says the type of its operands");
  if (bytes == 1) set("training", "precision", std::string("\"bf16\""), "what fp8 is added to");
}

void Recognition::require_model(const Transformer& known) const {
  const auto require = [&](const char* key, std::int64_t expected) {
    for (const FoundKey& found : found_.keys)
      if (found.key == key && found.value != std::to_string(expected))
        refuse(fmt::format("has {} {} ({}), and the model {}; expected a trace of this model", key, found.value,
                           found.why, expected));
  };
  require("hidden_size", known.hidden_size);
  require("num_attention_heads", known.num_attention_heads);
  if (known.experts.num_moe_experts == 0) require("ffn_hidden_size", known.ffn_hidden_size);
  require("num_moe_experts", known.experts.num_moe_experts);
}

}  // namespace stretto::diagnose
