#include "model/layers/layers.hpp"

namespace stretto::layers {

void mixer(Builder& g, const LayerSpec& spec, const Slice& x, const Slice& out) {
  switch (spec.mixer) {
    case MixerKind::attention:
    case MixerKind::latent:
      return attention(g, spec, x, out);
    case MixerKind::gated_delta:
      return gated_delta(g, x, out);
    case MixerKind::mamba:
      return mamba(g, x, out);
    case MixerKind::none:
      return;
  }
}

void layer(Builder& g, const LayerSpec& spec) {
  const Slice x = g.stream(Given::input), out = g.stream(Given::output);
  if (!spec.has_mlp()) return mixer(g, spec, x, out);
  Slice between = x;
  if (spec.mixer != MixerKind::none) {
    between = g.stream(Given::between);
    mixer(g, spec, x, between);
    g.begin_section();
  }
  if (spec.has_experts())
    experts(g, between, out);
  else
    mlp(g, between, out);
}

}  // namespace stretto::layers
