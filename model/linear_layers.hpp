#pragma once
#include <cstdint>
#include <vector>

#include "model/ops/codes.hpp"
#include "model/transformer.hpp"

namespace stretto {

// How tensor parallelism cuts a linear layer: its outputs (column-parallel), its inputs (row-parallel), or not at all,
// where every rank has the whole weight and its own tokens.
enum class LinearCut : std::uint8_t { outputs, inputs, none };

// A linear layer of the model's layers whose products low precision makes of codes, as a rank has it: weight [out, in].
// Experts of a rank are `groups` such weights, one below the other, that are multiplied in one operation.
struct LinearLayer {
  QuantisedLayer layer = QuantisedLayer::qkv;
  LinearCut cut = LinearCut::outputs;
  std::int64_t out = 0, in = 0;
  std::int64_t groups = 0;            // 0: no experts
  std::vector<LayerSpec> kinds = {};  // of the model's layers, that have it

  bool is_grouped() const { return groups > 0; }
  // Rows of the weight as it is stored.
  std::int64_t weight_rows() const { return is_grouped() ? groups * out : out; }
  // Returns whether layers of this kind have it.
  bool is_in(const LayerSpec& spec) const;
};

// Ranks that cut layers, and experts: `experts` of each layer's are on a rank.
struct LinearCuts {
  std::int64_t tp = 1, expert_tp = 1, experts = 0;
};
// Returns the linear layers that some layer of the model has, in the order in which a layer runs them. They are
// products with weights in the layers' graphs.
std::vector<LinearLayer> linear_layers(const Transformer& model, const LinearCuts& cuts);

}  // namespace stretto
