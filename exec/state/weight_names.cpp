#include "exec/state/weight_names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "exec/state/model_state.hpp"
#include "model/scenario/hf_config.hpp"

namespace stretto::exec {
namespace {

constexpr WeightNaming::Row kGpt2[] = {{"wte", {"wte"}},
                                       {"wpe", {"wpe"}},
                                       {"ln_1", {"ln_1"}},
                                       {"qkv", {"attn.c_attn"}, true},
                                       {"proj", {"attn.c_proj"}, true},
                                       {"ln_2", {"ln_2"}},
                                       {"fc1", {"mlp.c_fc"}, true},
                                       {"fc2", {"mlp.c_proj"}, true},
                                       {"ln_f", {"ln_f"}},
                                       {"lm_head", {"lm_head"}}};
constexpr WeightNaming::Row kLlama[] = {{"wte", {"embed_tokens"}},
                                        {"ln_1", {"input_layernorm"}},
                                        {"qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                                        {"q_norm", {"self_attn.q_norm"}},
                                        {"k_norm", {"self_attn.k_norm"}},
                                        {"proj", {"self_attn.o_proj"}},
                                        {"ln_2", {"post_attention_layernorm"}},
                                        {"fc1", {"mlp.gate_proj", "mlp.up_proj"}},
                                        {"fc2", {"mlp.down_proj"}},
                                        {"ln_f", {"norm"}},
                                        {"lm_head", {"lm_head"}}};
constexpr WeightNaming kNamings[] = {{"Stretto", "h.", {""}, {}},
                                     {"Hugging Face's GPT-2", "h.", {"transformer.", ""}, kGpt2},
                                     {"Hugging Face's Llama", "layers.", {"model.", ""}, kLlama}};

}  // namespace

std::span<const WeightNaming> weight_namings() { return kNamings; }

const WeightNaming& naming_for(const Transformer& model) {
  return hf_style(model) == HfStyle::gpt2 ? kNamings[1] : kNamings[2];
}

WeightPlace place_of(const WeightNaming& naming, const std::string& prefix, const Parameter& parameter) {
  // Weight decay applies only to matrices; a vector is a row of as many elements as its matrix has rows.
  const bool is_vector = !parameter.decayed;
  const std::int64_t rows = is_vector ? parameter.cols : parameter.rows;
  if (naming.rows.empty()) return {{{prefix + parameter.full_name(), rows}}, false};
  const auto row = std::find_if(naming.rows.begin(), naming.rows.end(), [&](const WeightNaming::Row& candidate) {
    return parameter.name.starts_with(std::string(candidate.parameter) + ".");
  });
  if (row == naming.rows.end())
    throw input_error(fmt::format("{} has no {}, which the scenario's model needs", naming.title, parameter.name));
  const std::string stem = row->parameter, kind = parameter.name.substr(stem.size());
  std::vector<std::string> names;
  for (const char* piece : row->pieces)
    if (piece != nullptr) names.emplace_back(piece);
  if (names.size() > 1 && parameter.segments.size() != names.size())
    throw input_error(fmt::format("{} has {} in {} parts (from {} on), the scenario's model in one", naming.title, stem,
                                  names.size(), names.front()));
  const std::string before = (stem == "lm_head" ? "" : prefix) +
                             (parameter.layer < 0 ? "" : naming.layer + std::to_string(parameter.layer) + ".");
  WeightPlace place{{}, row->is_transposed && !is_vector};
  for (std::size_t i = 0; i < names.size(); ++i)
    place.pieces.push_back({before + names[i] + kind, names.size() == 1 ? rows : parameter.segments[i]});
  return place;
}

std::optional<std::string> prefix_in(const WeightNaming& naming, const std::function<bool(const std::string&)>& has) {
  Parameter qkv;
  qkv.name = "qkv.weight";
  qkv.layer = 0;
  qkv.segments = {1, 1, 1};
  for (const char* prefix : naming.prefixes)
    if (prefix != nullptr && has(place_of(naming, prefix, qkv).pieces.front().name)) return prefix;
  return std::nullopt;
}

bool is_no_parameter(const std::string& tensor) {
  return tensor.starts_with(prefix_in_files(StatePart::adam_m)) ||
         tensor.starts_with(prefix_in_files(StatePart::adam_v)) || tensor.ends_with(".attn.bias") ||
         tensor.ends_with(".attn.masked_bias") || tensor.ends_with(".rotary_emb.inv_freq");
}

}  // namespace stretto::exec
