#include "model/layers/layers.hpp"

namespace stretto::layers {
namespace {

// Norms of q and k come after the product and before rotary positions (Megatron-LM, Qwen3 in Hugging Face).
Slice normalise_heads(Builder& g, const Slice& projected) {
  const Transformer& m = g.model();
  const std::vector<std::int64_t> widths = {m.q_size(), m.kv_heads() * m.head_dim(), m.kv_heads() * m.head_dim()};
  const Slice qkv = g.activation({"qkv.out", "d_qkv.normalised", TensorRole::qkv}, m.qkv_size(), Dim::heads);
  const std::vector<Slice> x = Builder::split(projected, widths), y = Builder::split(qkv, widths);
  g.set_branch(1);
  g.norm("q_norm", x[0], y[0], m.norm_heads(m.num_attention_heads));
  g.set_branch(2);
  g.norm("k_norm", x[1], y[1], m.norm_heads(m.kv_heads()));
  g.set_branch(3);
  g.add("v", "fprop", Cast{}, {reads(x[2]), writes(y[2])});
  g.set_branch(0);
  return qkv;
}

void turn(Builder& g, const Slice& qkv) {
  const Transformer& m = g.model();
  Rope work{Pass::forward, 0, m.num_attention_heads, m.kv_heads(), m.seq_length, m.head_dim(), m.rotary_base};
  work.scaling = m.rope_scaling;
  work.by_document = g.data().resets_positions;
  std::vector<Operand> operands = {adds(qkv)};
  if (work.by_document) operands.push_back(reads(g.given(Given::documents)));
  g.add("rope", "fprop", work, std::move(operands));
}

Slice projected_qkv(Builder& g, const LayerSpec& spec, const Slice& x) {
  const Transformer& m = g.model();
  const std::vector<std::int64_t> parts = {m.q_size(), m.kv_heads() * m.head_dim(), m.kv_heads() * m.head_dim()};
  Slice qkv = m.has_head_norms() ? g.activation({"qkv.projected", "d_qkv"}, parts, Dim::heads)
                                 : g.activation({"qkv.out", "d_qkv", TensorRole::qkv}, parts, Dim::heads);
  g.linear("qkv", x, qkv, m.has_qkv_bias());
  if (m.has_head_norms()) qkv = normalise_heads(g, qkv);
  if (m.position_embedding_type == PositionEmbedding::rope && spec.has_rope) turn(g, qkv);
  return qkv;
}

ScoreRules rules_of(const Transformer& m, const LayerSpec& spec) {
  ScoreRules rules{.cap = m.attn_logit_softcapping};
  if (spec.in_window) rules.window = m.sliding_window, rules.chunk = m.attention_chunk_size;
  rules.has_sink = m.softmax_type != SoftmaxType::vanilla;
  rules.learns_sink = m.softmax_type == SoftmaxType::learnable;
  return rules;
}

}  // namespace

void attention(Builder& g, const LayerSpec& spec, const Slice& x, const Slice& out) {
  const Transformer& m = g.model();
  const TokenData& data = g.data();
  const bool is_latent = spec.mixer == MixerKind::latent;
  g.set_module(Module::attention_norm);
  // Before latent attention it is a function of its own; otherwise TransformerEngine has it in one with the product.
  if (is_latent) g.set_function(Recomputed::layernorm);
  const Slice h = g.normed_input("ln_1", TensorRole::attention_norm_out, x);
  g.set_function(Recomputed::none);
  g.set_module(Module::attention);
  const Slice qkv = is_latent ? latent_qkv(g, h) : projected_qkv(g, spec, h);
  const Slice o =
      g.activation({"attention.out", "d_attention", TensorRole::attention_out}, m.attention_size(), Dim::heads);
  const Slice lse = g.add({.name = "attention.lse",
                           .gradient = {},
                           .rows = {Dim::heads, data.micro_batch_size * m.num_attention_heads},
                           .cols = {Dim::none, m.seq_length},
                           .kind = ValueKind::statistics});
  Attention core{Pass::forward, data.micro_batch_size, m.num_attention_heads, m.kv_heads(), m.seq_length, m.head_dim(),
                 true,          m.attention_dropout};
  if (is_latent) core.value_dim = m.value_dim();
  core.score_scale = m.latent.yarn.of_scores();
  core.by_document = data.masks_documents;
  core.document_tokens = data.document_tokens;
  if (!is_latent) core.rules = rules_of(m, spec);
  std::vector<Operand> operands = {reads(qkv), writes(o), writes(lse)};
  if (m.attention_dropout > 0) operands.push_back(reads(g.given(Given::dropout_key)));
  if (core.rules.learns_sink) operands.push_back(reads(g.vector("sinks", {Dim::heads, m.num_attention_heads})));
  if (data.masks_documents) operands.push_back(reads(g.given(Given::documents)));
  g.set_function(Recomputed::core_attn);
  Node& attends = g.add("attention", "fprop", core, std::move(operands));
  if (spec.in_window) attends.suffix = ".window";  // layers without one have another operation
  g.set_function(Recomputed::none);
  const Slice b = g.sublayer_result("proj");
  g.linear("proj", o, b, m.add_bias_linear);
  g.residual("residual_1", "proj", x, g.normed_result("proj", b), out, DropoutSite::residual_1);
}

}  // namespace stretto::layers
