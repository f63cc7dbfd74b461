#include "model/layers/layers.hpp"

namespace stretto::layers {

void layer(Builder& g, const LayerSpec& spec) {
  const Slice x = g.stream(Given::input), out = g.stream(Given::output);
  if (!spec.has_mlp()) return attention(g, x, out);
  const Slice between = g.stream(Given::between);
  attention(g, x, between);
  g.begin_section();
  if (spec.has_experts())
    experts(g, between, out);
  else
    mlp(g, between, out);
}

}  // namespace stretto::layers
