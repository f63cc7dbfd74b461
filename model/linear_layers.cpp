#include "model/linear_layers.hpp"

#include <algorithm>

namespace stretto {
namespace {

using L = QuantisedLayer;

}  // namespace

bool LinearLayer::is_in(const LayerSpec& spec) const {
  switch (layer) {
    case L::fc1:
    case L::fc2:
      return spec.mlp == MlpKind::dense;
    case L::shared_fc1:
    case L::shared_fc2:
    case L::experts_fc1:
    case L::experts_fc2:
      return spec.has_experts();
    case L::qkv:
      return spec.mixer == MixerKind::attention;
    case L::q:
    case L::q_down:
    case L::q_up:
    case L::kv_down:
    case L::kv_up:
      return spec.mixer == MixerKind::latent;
    case L::proj:
      return spec.mixer == MixerKind::attention || spec.mixer == MixerKind::latent;
  }
  return true;
}

std::vector<LinearLayer> linear_layers(const Transformer& model, const LinearCuts& cuts) {
  const std::int64_t hidden = model.hidden_size, tp = cuts.tp;
  std::vector<LinearLayer> layers;
  const LatentAttention& latent = model.latent;
  if (latent.any()) {
    const std::int64_t queries = model.num_attention_heads * model.head_dim() / tp;
    if (latent.q_lora_rank > 0) {
      layers.push_back({L::q_down, LinearCut::none, latent.q_lora_rank, hidden});
      layers.push_back({L::q_up, LinearCut::outputs, queries, latent.q_lora_rank});
    } else {
      layers.push_back({L::q, LinearCut::outputs, queries, hidden});
    }
    layers.push_back({L::kv_down, LinearCut::none, latent.kv_down_size(), hidden});
    layers.push_back({L::kv_up, LinearCut::outputs, model.kv_up_size() / tp, latent.kv_lora_rank});
  } else {
    layers.push_back({L::qkv, LinearCut::outputs, model.qkv_size() / tp, hidden});
  }
  layers.push_back({L::proj, LinearCut::inputs, hidden, model.attention_size() / tp});
  layers.push_back({L::fc1, LinearCut::outputs, model.fc1_size() / tp, hidden});
  layers.push_back({L::fc2, LinearCut::inputs, hidden, model.ffn_hidden_size / tp});
  if (model.experts.any()) {
    const std::int64_t width = model.expert_size() / cuts.expert_tp;
    const std::int64_t shared = model.experts.moe_shared_expert_intermediate_size / tp;
    if (model.experts.has_shared()) {
      layers.push_back({L::shared_fc1, LinearCut::outputs, model.rows_of_fc1(shared), hidden});
      layers.push_back({L::shared_fc2, LinearCut::inputs, hidden, shared});
    }
    layers.push_back({L::experts_fc1, LinearCut::none, model.rows_of_fc1(width), hidden, cuts.experts});
    layers.push_back({L::experts_fc2, LinearCut::none, hidden, width, cuts.experts});
  }
  const std::vector<LayerSpec> kinds = model.layer_kinds();
  std::erase_if(layers, [&](const LinearLayer& layer) {
    return std::none_of(kinds.begin(), kinds.end(), [&](const LayerSpec& kind) { return layer.is_in(kind); });
  });
  return layers;
}

}  // namespace stretto
