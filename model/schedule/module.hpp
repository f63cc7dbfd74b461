#pragma once
#include <cstdint>

namespace stretto {

// The part of the model that an operation computes, or moves data for. Modules are those of Megatron-LM.
enum class Module : std::uint8_t {
  none,  // of no part of the model: messages of pipelines, and all that concerns parameters, which Phase names
  embedding,
  attention_norm,  // before attention; with Megatron-LM input_layernorm
  attention,       // from the products for queries, keys and values to the addition to the residual stream
  mlp_norm,        // before the MLP or the experts; with Megatron-LM pre_mlp_layernorm
  mlp,             // a dense MLP, and the addition to the residual stream after an MLP or experts
  router,
  token_sort,  // order of the tokens' copies by expert, and their permutation; dispatch_preprocess of Megatron-LM
  experts,     // exchanges of tokens included
  shared_experts,
  final_norm,
  head,  // output layer and loss
};
const char* name_of(Module module);  // "attention", …

// The function that a backward pass runs again and that the operation is a part of: a layer, or one of Megatron-LM's
// recompute_modules. Consecutive operations of a function are one run; a norm and the `mlp` after it are one, too.
enum class Recomputed : std::uint8_t {
  none,  // the operation is no recomputation
  layer,
  core_attn,
  mla_up_proj,
  layernorm,
  moe_act,
  mlp,
  shared_experts,
  moe,
};

// A factor of a linear layer's products: forward X · Wᵀ, data gradient dY · W, weight gradient dYᵀ · X.
enum class Factor : std::uint8_t { none, x, w, dy };

}  // namespace stretto
