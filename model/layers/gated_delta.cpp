#include <cmath>

#include "model/layers/linear_mixer.hpp"

namespace stretto::layers {

void gated_delta(Builder& g, const Slice& x, const Slice& out) {
  const Transformer& m = g.model();
  const GatedDelta& d = m.gated_delta;
  const std::int64_t heads = d.linear_num_value_heads;
  const std::vector<Slice> in = Builder::split(projected(g, x, d.in_parts()), d.in_parts());
  const Slice taken = convolved(g, in[0], d.conv_parts(), d.linear_conv_kernel_dim, false);
  const std::vector<Slice> qkv = Builder::split(taken, d.conv_parts());
  const Gates gates = gates_of(g, heads, in[5], &in[4]);
  const Slice o = g.activation({"linear.out", "d_linear"}, d.values(), Dim::heads);
  LinearAttention core{Pass::forward,         g.data().micro_batch_size, heads, d.linear_num_key_heads, m.seq_length,
                       d.linear_key_head_dim, d.linear_value_head_dim};
  core.delta = core.unit_keys = true;
  core.scale = 1 / std::sqrt(double(d.linear_key_head_dim));
  g.add("linear", "fprop", core,
        {reads(qkv[0]), reads(qkv[1]), reads(qkv[2]), reads(gates.rate), reads(gates.decay), writes(o)});
  leave(g, {o, in[3], GatedNorm{Pass::forward, 0, heads, d.linear_value_head_dim, false, m.norm_epsilon}}, x, out);
}

}  // namespace stretto::layers
