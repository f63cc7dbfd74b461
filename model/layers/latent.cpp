#include "model/layers/layers.hpp"

namespace stretto::layers {

// A product down to a short vector, and the norm of the columns that are no shared key.
static Slice shorten(Builder& g, const std::string& name, const Slice& x, std::int64_t rank, const Slice& down) {
  g.linear(name + "_down", x, down, false);
  const Slice y = g.activation({name + "_norm.out", "d_" + name + "_norm"}, rank);
  g.norm(name + "_norm", Slice{down.value, 0, rank}, y);
  return y;
}

Slice latent_qkv(Builder& g, const Slice& x) {
  const Transformer& m = g.model();
  const LatentAttention& latent = m.latent;
  const Slice qkv = g.activation({"qkv.out", "d_qkv", TensorRole::qkv}, m.qkv_size(), Dim::heads);
  const std::vector<Slice> parts = Builder::split(qkv, {m.q_size(), m.qkv_size() - m.q_size()});
  const bool has_vector = latent.q_lora_rank > 0;
  Slice queries = x;
  if (has_vector) {
    g.set_branch(1);
    queries = shorten(g, "q", x, latent.q_lora_rank, g.activation({"q_down.out", "d_q_down"}, latent.q_lora_rank));
  }
  g.set_branch(2);
  const Slice down = g.activation({"kv_down.out", "d_kv_down"}, latent.kv_down_size());
  const Slice keys = shorten(g, "kv", x, latent.kv_lora_rank, down);
  g.set_function(Recomputed::mla_up_proj);
  g.set_branch(1);
  g.linear(has_vector ? "q_up" : "q", queries, parts[0], false);
  g.set_branch(2);
  const Slice up = g.activation({"kv_up.out", "d_kv_up"}, m.kv_up_size(), Dim::heads);
  g.linear("kv_up", keys, up, false);
  g.set_branch(0);
  LatentHeads work{Pass::forward,
                   0,
                   m.num_attention_heads,
                   m.seq_length,
                   latent.qk_head_dim,
                   latent.qk_pos_emb_head_dim,
                   latent.v_head_dim,
                   m.rotary_base,
                   latent.yarn};
  work.by_document = g.data().resets_positions;
  std::vector<Operand> operands = {reads(up), reads({down.value, latent.kv_lora_rank, latent.qk_pos_emb_head_dim}),
                                   adds(parts[0]), writes(parts[1])};
  if (work.by_document) operands.push_back(reads(g.given(Given::documents)));
  g.add("heads", "fprop", work, std::move(operands));
  g.set_function(Recomputed::none);
  return qkv;
}

}  // namespace stretto::layers
