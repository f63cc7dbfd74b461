#include "model/recompute.hpp"

#include "base/values_of.hpp"
#include "model/training_flops.hpp"

namespace stretto {

const char* name_of(Recompute::Granularity granularity) {
  return name_in({"none", "selective", "selective_op", "full"}, granularity);
}
const char* name_of(Recompute::Method method) { return name_in({"uniform", "block"}, method); }
const char* name_of(Recompute::Module module) {
  return name_in({"core_attn", "mla_up_proj", "layernorm", "moe_act", "mlp", "shared_experts", "moe"}, module);
}

namespace {

// Returns the FLOPs per token of the products that the modules of a layer compute again.
double product_flops_of_modules(const Transformer& model, const Recompute& recompute, const LayerSpec& spec) {
  using Module = Recompute::Module;
  const LayerWeights weights = layer_weights(model, spec);
  double products = 0;
  if (const LatentAttention& latent = model.latent;
      spec.mixer == MixerKind::latent && recompute.repeats(Module::mla_up_proj))
    products += double((latent.q_lora_rank > 0 ? latent.q_lora_rank : model.hidden_size) * model.q_size()) +
                double(latent.kv_lora_rank * model.kv_up_size());
  if (spec.mlp == MlpKind::dense && recompute.repeats(Module::mlp))
    products += weights.fc1 + (recompute.whole_layers ? weights.fc2 : 0);
  const bool all = spec.has_experts() && recompute.repeats(Module::moe);
  if (all)
    products += weights.fc1 + (recompute.whole_layers ? weights.fc2 : 0) +
                double(model.hidden_size * model.experts.num_moe_experts);
  if (all || (spec.has_experts() && recompute.repeats(Module::shared_experts))) {
    const std::int64_t shared = model.experts.moe_shared_expert_intermediate_size;
    const bool is_gated = model.experts.moe_shared_expert_gate;
    products += double(model.hidden_size * (model.rows_of_fc1(shared) +
                                            (is_gated || recompute.whole_layers ? shared : 0) + (is_gated ? 1 : 0)));
  }
  return 2 * products;
}

}  // namespace

double recompute_flops_per_sequence(const Transformer& model, const Recompute& recompute, AttentionBackend backend,
                                    std::int64_t tp, double document_tokens) {
  if (recompute.granularity == Recompute::Granularity::none) return 0;
  const double s = double(model.seq_length), q = double(model.q_size() + model.attention_size()) / 2;
  const double attention =  // QKᵀ and PV
      2 * executed_attention_share(backend, model.seq_length, document_tokens) * 2 * s * s * q;
  const bool is_light = recompute.granularity == Recompute::Granularity::selective_op;
  double flops = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerSpec spec = model.layer(layer);
    const LayerWeights weights = layer_weights(model, spec);
    if (is_light)
      flops += s * 2 * ((tp == 1 && spec.has_mlp() ? weights.proj : 0) + (model.swiglu ? weights.fc1 / 2 : 0));
    if (recompute.repeats(Recompute::Module::core_attn)) flops += attention;
    flops += s * product_flops_of_modules(model, recompute, spec);
    if (!recompute.is_full(layer)) continue;
    const bool is_last = layer + 1 == model.num_layers || (layer + 1) % recompute.group() == 0;
    const double last = spec.has_mlp() ? weights.fc2 : weights.proj;
    flops += s * 2 * (weights.all() - last) + attention + (is_last && !recompute.whole_layers ? 0 : s * 2 * last);
  }
  return flops;
}

}  // namespace stretto
