#include "model/recompute.hpp"

#include "base/values_of.hpp"
#include "model/schedule/work.hpp"

namespace stretto {

const char* name_of(Recompute::Granularity granularity) {
  return name_in({"none", "selective", "selective_op", "full"}, granularity);
}
const char* name_of(Recompute::Method method) { return name_in({"uniform", "block"}, method); }

double recompute_flops_per_sequence(const Transformer& model, const Recompute& recompute, AttentionBackend backend,
                                    std::int64_t tp) {
  if (recompute.granularity == Recompute::Granularity::none) return 0;
  const double s = double(model.seq_length), h = double(model.hidden_size), f = double(model.ffn_hidden_size);
  const double attention = 2 * executed_attention_share(backend, model.seq_length) * 2 * s * s * h;  // QKᵀ and PV
  if (recompute.granularity == Recompute::Granularity::selective) return double(model.num_layers) * attention;
  if (recompute.granularity == Recompute::Granularity::selective_op)
    return double(model.num_layers) * s * 2 * h * ((tp == 1 ? h : 0) + (model.swiglu ? f : 0));
  const double inner = s * 2 * h * (double(model.qkv_size()) + h + double(model.fc1_size())), fc2 = s * 2 * f * h;
  double flops = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (!recompute.is_full(layer)) continue;
    const bool is_last = layer + 1 == model.num_layers || (layer + 1) % recompute.group() == 0;
    flops += inner + attention + (is_last && !recompute.whole_layers ? 0 : fc2);
  }
  return flops;
}

}  // namespace stretto
