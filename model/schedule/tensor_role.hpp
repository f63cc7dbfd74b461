#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// The part that a tensor plays, for code that treats some tensors apart. Names are text for people, and no role.
enum class TensorRole : std::uint8_t {
  none,
  // Activations of a layer and of the head that frameworks may keep more or less of; their spellings are keys of
  // profiles ([memory.kept]).
  layer_input,
  attention_norm_out,
  qkv,
  attention_out,
  x_mid,  // residual stream after attention
  mlp_norm_out,
  fc1_out,
  gelu_out,
  swiglu_out,
  experts_in,
  experts_fc1_out,
  experts_act,
  shared_fc1_out,
  shared_act,
  final_norm_out,
  logits,
  d_hidden,  // gradient of a norm's output, as large as a micro-batch's hidden states
  // Parameters and gradients in one piece
  parameter_shard,          // FSDP: the rank's part of a unit's parameters
  unit_parameters,          // FSDP: gathered parameters of a layer
  root_unit_parameters,     // FSDP: gathered parameters of embedding, last norm or head
  fp8_gathered_parameters,  // a bucket of parameters that are gathered in fp8
  gradients_to_reduce,      // copy of gradients in another type, for their reduction
  master_parameters,        // the optimizer's
  gate_out,                 // another activation: the gate, where fc1 computes gate and up apart
};
// Returns the spelling of an activation ("ln_1.out"); "" for other roles.
const char* name_of(TensorRole role);
// Returns the activation with this spelling; nullopt: no role has it.
std::optional<TensorRole> activation_role(std::string_view spelling);
std::vector<std::string> activation_spellings();

}  // namespace stretto
