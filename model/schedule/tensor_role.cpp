#include "model/schedule/tensor_role.hpp"

#include <array>
#include <utility>

namespace stretto {
namespace {

constexpr std::array<std::pair<TensorRole, const char*>, 17> kActivations = {
    {{TensorRole::layer_input, "x"},
     {TensorRole::attention_norm_out, "ln_1.out"},
     {TensorRole::qkv, "qkv.out"},
     {TensorRole::attention_out, "attention.out"},
     {TensorRole::x_mid, "x_mid"},
     {TensorRole::mlp_norm_out, "ln_2.out"},
     {TensorRole::fc1_out, "fc1.out"},
     {TensorRole::gate_out, "gate.out"},
     {TensorRole::gelu_out, "gelu.out"},
     {TensorRole::swiglu_out, "swiglu.out"},
     {TensorRole::experts_in, "experts.in"},
     {TensorRole::experts_fc1_out, "experts.fc1.out"},
     {TensorRole::experts_act, "experts.act"},
     {TensorRole::shared_fc1_out, "shared.fc1.out"},
     {TensorRole::shared_act, "shared.act"},
     {TensorRole::final_norm_out, "ln_f.out"},
     {TensorRole::logits, "logits"}}};

}  // namespace

const char* name_of(TensorRole role) {
  for (const auto& [known, spelling] : kActivations)
    if (known == role) return spelling;
  return "";
}

std::optional<TensorRole> activation_role(std::string_view spelling) {
  for (const auto& [role, known] : kActivations)
    if (spelling == known) return role;
  return std::nullopt;
}

std::vector<std::string> activation_spellings() {
  std::vector<std::string> spellings;
  for (const auto& [role, spelling] : kActivations) spellings.emplace_back(spelling);
  return spellings;
}

}  // namespace stretto
