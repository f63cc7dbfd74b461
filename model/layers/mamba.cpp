#include "model/layers/linear_mixer.hpp"

namespace stretto::layers {

void mamba(Builder& g, const Slice& x, const Slice& out) {
  const Transformer& m = g.model();
  const Mamba& d = m.mamba;
  const std::int64_t heads = d.mamba_num_heads;
  const std::vector<Slice> in = Builder::split(projected(g, x, d.in_parts()), d.in_parts());
  const Slice taken = convolved(g, in[1], d.conv_parts(), Mamba::kConvTaps, true);
  const std::vector<Slice> xbc = Builder::split(taken, d.conv_parts());
  const Gates gates = gates_of(g, heads, in[4], nullptr);
  const Slice o = g.activation({"linear.out", "d_linear"}, d.inner(), Dim::heads);
  LinearAttention core{Pass::forward, g.data().micro_batch_size, heads,           d.mamba_num_groups,
                       m.seq_length,  d.mamba_state_dim,         d.mamba_head_dim};
  core.skip = true;
  g.add("linear", "fprop", core,
        {reads(xbc[2]), reads(xbc[1]), reads(xbc[0]), reads(gates.rate), reads(gates.decay),
         reads(g.vector("skip", {Dim::heads, heads})), writes(o)});
  const std::int64_t groups = d.mamba_num_groups;
  leave(g, {o, in[0], GatedNorm{Pass::forward, 0, groups, d.inner() / groups, true, m.norm_epsilon}}, x, out);
}

}  // namespace stretto::layers
