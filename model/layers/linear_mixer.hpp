#pragma once
#include <vector>

#include "model/layers/layers.hpp"

// Parts that the gated delta rule and Mamba-2 share: product, short convolution, gates, gated norm, product.
namespace stretto::layers {

// Returns in_proj(norm(x)), of these parts, which heads cut.
Slice projected(Builder& g, const Slice& x, const std::vector<std::int64_t>& parts);
// Returns SiLU(conv(x)), where x is `first` and the parts that come after it in the same value.
Slice convolved(Builder& g, const Slice& first, const std::vector<std::int64_t>& parts, std::int64_t taps,
                bool has_bias);
struct Gates {
  Slice rate, decay;
};
// `raw_rate` null: the step is the rate (LinearGates).
Gates gates_of(Builder& g, std::int64_t heads, const Slice& raw_decay, const Slice* raw_rate);
struct Gated {
  Slice o, z;
  GatedNorm norm;
};
// out = x + out_proj(norm(o, z))
void leave(Builder& g, const Gated& gated, const Slice& x, const Slice& out);

}  // namespace stretto::layers
