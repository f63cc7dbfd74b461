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
                                        {"sinks", {"self_attn.sinks"}},
                                        {"proj", {"self_attn.o_proj"}},
                                        {"ln_2", {"post_attention_layernorm"}},
                                        {"fc1", {"mlp.gate_proj", "mlp.up_proj"}},
                                        {"fc2", {"mlp.down_proj"}},
                                        {"router", {"mlp.gate"}},
                                        {"experts.fc1", {"mlp.experts.#.gate_proj", "mlp.experts.#.up_proj"}},
                                        {"experts.fc2", {"mlp.experts.#.down_proj"}},
                                        {"ln_f", {"norm"}},
                                        {"lm_head", {"lm_head"}}};
// Norms of the results of sublayers: Gemma 2 and 3, and without ln_1 and ln_2 OLMo 2 and EXAONE 4.
constexpr WeightNaming::Row kNormedResults[] = {{"wte", {"embed_tokens"}},
                                                {"ln_1", {"input_layernorm"}},
                                                {"qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                                                {"q_norm", {"self_attn.q_norm"}},
                                                {"k_norm", {"self_attn.k_norm"}},
                                                {"proj_norm", {"post_attention_layernorm"}},
                                                {"proj", {"self_attn.o_proj"}},
                                                {"ln_2", {"pre_feedforward_layernorm"}},
                                                {"fc1", {"mlp.gate_proj", "mlp.up_proj"}},
                                                {"fc2_norm", {"post_feedforward_layernorm"}},
                                                {"fc2", {"mlp.down_proj"}},
                                                {"ln_f", {"norm"}},
                                                {"lm_head", {"lm_head"}}};
constexpr WeightNaming::Row kMixtral[] = {
    {"wte", {"embed_tokens"}},
    {"ln_1", {"input_layernorm"}},
    {"qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
    {"proj", {"self_attn.o_proj"}},
    {"ln_2", {"post_attention_layernorm"}},
    {"router", {"block_sparse_moe.gate"}},
    {"experts.fc1", {"block_sparse_moe.experts.#.w1", "block_sparse_moe.experts.#.w3"}},
    {"experts.fc2", {"block_sparse_moe.experts.#.w2"}},
    {"ln_f", {"norm"}},
    {"lm_head", {"lm_head"}}};
constexpr WeightNaming::Row kDeepseek[] = {
    {"wte", {"embed_tokens"}},
    {"ln_1", {"input_layernorm"}},
    {"q", {"self_attn.q_proj"}},
    {"q_down", {"self_attn.q_a_proj"}},
    {"q_norm", {"self_attn.q_a_layernorm"}},
    {"q_up", {"self_attn.q_b_proj"}},
    {"kv_down", {"self_attn.kv_a_proj_with_mqa"}},
    {"kv_norm", {"self_attn.kv_a_layernorm"}},
    {"kv_up", {"self_attn.kv_b_proj"}},
    {"proj", {"self_attn.o_proj"}},
    {"ln_2", {"post_attention_layernorm"}},
    {"fc1", {"mlp.gate_proj", "mlp.up_proj"}},
    {"fc2", {"mlp.down_proj"}},
    {"router.bias", {"mlp.gate.e_score_correction_bias"}},
    {"router", {"mlp.gate"}},
    {"experts.fc1", {"mlp.experts.#.gate_proj", "mlp.experts.#.up_proj"}},
    {"experts.fc2", {"mlp.experts.#.down_proj"}},
    {"shared.fc1", {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"}},
    {"shared.fc2", {"mlp.shared_experts.down_proj"}},
    {"ln_f", {"norm"}},
    {"lm_head", {"lm_head"}}};
constexpr WeightNaming kNamings[] = {{"Stretto", "h.", {""}, {}},
                                     {"Hugging Face's GPT-2", "h.", {"transformer.", ""}, kGpt2},
                                     {"Hugging Face's Mixtral", "layers.", {"model.", ""}, kMixtral, "router"},
                                     {"Hugging Face's DeepSeek", "layers.", {"model.", ""}, kDeepseek, "kv_down"},
                                     {"Hugging Face's Gemma 2", "layers.", {"model.", ""}, kNormedResults, "fc2_norm"},
                                     {"Hugging Face's Llama", "layers.", {"model.", ""}, kLlama}};

}  // namespace

std::span<const WeightNaming> weight_namings() { return kNamings; }

const WeightNaming& naming_for(const Transformer& model) {
  if (hf_style(model) == HfStyle::gpt2) return kNamings[1];
  if (model.latent.any()) return kNamings[3];
  return model.experts.any() && !model.qk_layernorm ? kNamings[2] : kNamings[5];
}

WeightPlace place_of(const WeightNaming& naming, const std::string& prefix, const Parameter& parameter) {
  // Weight decay applies only to matrices; a vector is a row of as many elements as its matrix has rows.
  const bool is_vector = !parameter.decayed;
  const std::int64_t rows = is_vector ? parameter.cols : parameter.rows;
  if (naming.rows.empty()) return {{{prefix + parameter.full_name(), rows}}, false};
  const auto row = std::find_if(naming.rows.begin(), naming.rows.end(), [&](const WeightNaming::Row& candidate) {
    return parameter.name == candidate.parameter || parameter.name.starts_with(std::string(candidate.parameter) + ".");
  });
  if (row == naming.rows.end())
    throw input_error(fmt::format("{} has no {}, which the scenario's model needs", naming.title, parameter.name));
  const std::string stem = row->parameter, kind = parameter.name.substr(stem.size());
  std::vector<std::string> names;
  for (const char* piece : row->pieces)
    if (piece != nullptr) names.emplace_back(piece);
  const std::size_t owners = static_cast<std::size_t>(std::max<std::int64_t>(1, parameter.experts));
  if (names.size() > 1 && parameter.segments.size() != names.size() * owners)
    throw input_error(fmt::format("{} has {} in {} parts (from {} on), the scenario's model in one", naming.title, stem,
                                  names.size(), names.front()));
  const std::string before = (stem == "lm_head" ? "" : prefix) +
                             (parameter.layer < 0 ? "" : naming.layer + std::to_string(parameter.layer) + ".");
  WeightPlace place{{}, row->is_transposed && !is_vector};
  for (std::size_t owner = 0; owner < owners; ++owner)
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::string name = names[i];
      if (const std::size_t at = name.find('#'); at != std::string::npos) name.replace(at, 1, std::to_string(owner));
      place.pieces.push_back({before + name + kind, names.size() == 1 ? rows / static_cast<std::int64_t>(owners)
                                                                      : parameter.segments[owner * names.size() + i]});
    }
  return place;
}

std::optional<std::string> prefix_in(const WeightNaming& naming, const std::function<bool(const std::string&)>& has) {
  Parameter known;
  known.name = std::string(naming.known_by) + ".weight";
  known.layer = 0;
  known.segments = {1, 1, 1};
  for (const char* prefix : naming.prefixes)
    if (prefix != nullptr && has(place_of(naming, prefix, known).pieces.front().name)) return prefix;
  return std::nullopt;
}

bool is_no_parameter(const std::string& tensor) {
  return tensor.starts_with(prefix_in_files(StatePart::adam_m)) ||
         tensor.starts_with(prefix_in_files(StatePart::adam_v)) || tensor.ends_with(".attn.bias") ||
         tensor.ends_with(".attn.masked_bias") || tensor.ends_with(".rotary_emb.inv_freq");
}

}  // namespace stretto::exec
