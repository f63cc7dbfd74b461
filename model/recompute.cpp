#include "model/recompute.hpp"

#include "base/values_of.hpp"
#include "model/training_flops.hpp"

namespace stretto {

const char* name_of(Recompute::Granularity granularity) {
  return name_in({"none", "selective", "selective_op", "full"}, granularity);
}
const char* name_of(Recompute::Method method) { return name_in({"uniform", "block"}, method); }

double recompute_flops_per_sequence(const Transformer& model, const Recompute& recompute, AttentionBackend backend,
                                    std::int64_t tp) {
  if (recompute.granularity == Recompute::Granularity::none) return 0;
  const double s = double(model.seq_length), q = double(model.q_size() + model.attention_size()) / 2;
  const double attention = 2 * executed_attention_share(backend, model.seq_length) * 2 * s * s * q;  // QKᵀ and PV
  const bool is_light = recompute.granularity == Recompute::Granularity::selective_op;
  double flops = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerSpec spec = model.layer(layer);
    const LayerWeights weights = layer_weights(model, spec);
    if (is_light)
      flops += s * 2 * ((tp == 1 && spec.has_mlp() ? weights.proj : 0) + (model.swiglu ? weights.fc1 / 2 : 0));
    if (recompute.granularity == Recompute::Granularity::selective) flops += attention;
    if (!recompute.is_full(layer)) continue;
    const bool is_last = layer + 1 == model.num_layers || (layer + 1) % recompute.group() == 0;
    const double last = spec.has_mlp() ? weights.fc2 : weights.proj;
    flops += s * 2 * (weights.all() - last) + attention + (is_last && !recompute.whole_layers ? 0 : s * 2 * last);
  }
  return flops;
}

}  // namespace stretto
