#include "model/layers/layers.hpp"

namespace stretto::layers {

void mlp(Builder& g, const Slice& x, const Slice& out) {
  const Transformer& m = g.model();
  g.set_module(Module::mlp_norm);
  g.set_function(Recomputed::mlp);  // TransformerEngine has the norm in one function with fc1
  const Slice h = g.normed_input("ln_2", TensorRole::mlp_norm_out, x);
  g.set_module(Module::mlp);
  const Slice y = g.activation({"fc1.out", "d_fc1", TensorRole::fc1_out}, g.parts_of_fc1(m.ffn_hidden_size), Dim::ffn);
  g.linear("fc1", h, y, m.add_bias_linear);
  const Slice a = g.activation(m.swiglu ? Builder::Named{"swiglu.out", "d_swiglu", TensorRole::swiglu_out}
                                        : Builder::Named{"gelu.out", "d_gelu", TensorRole::gelu_out},
                               m.ffn_hidden_size, Dim::ffn);
  g.activation(y, a);
  const Slice b = g.sublayer_result("fc2");
  g.linear("fc2", a, b, m.add_bias_linear);
  g.set_function(Recomputed::none);
  g.residual("residual_2", "fc2", x, g.normed_result("fc2", b), out, DropoutSite::residual_2);
}

}  // namespace stretto::layers
