#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/transformer.hpp"

namespace stretto {

// Which activations of a layer are saved for its backward pass, and which are recomputed (Chen et al., arXiv
// 1604.06174). Names and meaning are Megatron-LM's recompute_granularity, recompute_method and recompute_num_layers.
struct Recompute {
  enum class Granularity : std::uint8_t {
    none,
    selective,     // parts of a layer: `modules`
    selective_op,  // all but attention's output and every second matrix product (torchtitan's selective_ac_option "op")
    full,          // everything but the input of a layer, or of a group of layers
  };
  enum class Method : std::uint8_t {
    uniform,  // every layer, in groups of num_layers; only the input of a group's first layer is saved
    block,    // the first num_layers layers, each by itself
  };
  // Parts of a layer that `selective` computes again just before the backward pass needs them (recompute_modules).
  enum class Module : std::uint8_t {
    core_attn,       // the attention core (Korthikanti et al., arXiv 2205.05198)
    mla_up_proj,     // latent attention's products up and the heads made of them: q, k and v are not saved
    layernorm,       // norms before latent attention and before experts; others are a part of the product after them
    moe_act,         // experts' activation
    mlp,             // a dense MLP but its input
    shared_experts,  // a shared expert but its input
    moe,             // experts but their input: router, exchanges of rows, experts and the shared one
  };
  Granularity granularity = Granularity::none;
  Method method = Method::uniform;
  std::int64_t num_layers = 1;
  // A recomputed layer, `mlp`, `shared_experts` or `moe` repeats its whole forward pass except the addition that writes
  // its output, even where the backward pass does not need the result, as frameworks do that checkpoint it as a
  // function.
  bool whole_layers = false;
  std::vector<Module> modules = {Module::core_attn};

  bool repeats(Module module) const {
    return granularity == Granularity::selective && std::count(modules.begin(), modules.end(), module) > 0;
  }
  // Returns whether weight gradients read what is computed again.
  bool repeats_inputs() const {
    return repeats_layers() || (granularity == Granularity::selective && modules != std::vector{Module::core_attn});
  }
  bool is_full(std::int64_t layer) const {
    return granularity == Granularity::full && (method == Method::uniform || layer < num_layers);
  }
  // Returns whether the backward pass of a layer begins with operations of its forward pass.
  bool repeats_layers() const { return granularity == Granularity::full || granularity == Granularity::selective_op; }
  // Returns the number of layers that are recomputed together.
  std::int64_t group() const { return method == Method::uniform ? num_layers : 1; }
};

// Megatron-LM's spellings: "none", "selective", "selective_op", "full"; "uniform", "block".
const char* name_of(Recompute::Granularity granularity);
const char* name_of(Recompute::Method method);
const char* name_of(Recompute::Module module);  // "core_attn", …

// Returns the recomputed FLOPs of a step per sequence, for layers that are cut `tp` times. They are counted as in
// Flops::hardware, and the caller adds them to it.
double recompute_flops_per_sequence(const Transformer& model, const Recompute& recompute, AttentionBackend backend,
                                    std::int64_t tp, double document_tokens = 0);

}  // namespace stretto
