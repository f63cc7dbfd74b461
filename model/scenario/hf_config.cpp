#include "model/scenario/hf_config.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/read_file.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/not_modelled.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

constexpr double kEpsilon = 1e-5;         // epsilon of norms (model/schedule/work.hpp)
constexpr double kInitializerStd = 0.02;  // Training::init_method_std

// Keys that change nothing in the computation for a token, or only what a program prints or generates.
constexpr const char* kHarmless[] = {"architectures",
                                     "auto_map",
                                     "bos_token_id",
                                     "dtype",
                                     "eos_token_id",
                                     "gradient_checkpointing",
                                     "id2label",
                                     "initializer_range",
                                     "is_decoder",
                                     "is_encoder_decoder",
                                     "label2id",
                                     "n_ctx",
                                     "name_or_path",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_past",
                                     "pad_token_id",
                                     "predict_special_tokens",
                                     "pretraining_tp",
                                     "reorder_and_upcast_attn",
                                     "return_dict",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     "task_specific_params",
                                     "tokenizer_class",
                                     "torch_dtype",
                                     "transformers_version",
                                     "unsloth_fixed",
                                     "unsloth_version",
                                     "use_cache"};

// The line on which each key first stands, for keys without escapes.
using Lines = std::map<std::string, int, std::less<>>;
Lines lines_of(std::string_view text) {
  Lines lines;
  int line = 1;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n') ++line;
    if (text[at] != '"') continue;
    const std::size_t begin = at + 1;
    for (++at; at < text.size() && text[at] != '"';) at += text[at] == '\\' ? 2 : 1;
    const std::size_t after = text.find_first_not_of(" \t\r\n", at + 1);
    if (after != std::string_view::npos && text[after] == ':')
      lines.emplace(std::string(text.substr(begin, at - begin)), line);
  }
  return lines;
}

// Converts a JSON value. A nested table is converted one level deep; deeper values keep only their kind, and arrays
// their integers. null is an absent key, except for sliding_window, whose absence means a window.
TomlNode node_of(const Json& value, const Lines& lines, int line, int depth) {
  TomlNode node{false, line};
  if (value.is_boolean()) node.data = value.get<bool>();
  if (value.is_number_float()) node.data = value.get<double>();
  if (value.is_number_integer()) node.data = value.get<std::int64_t>();
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    node.data = value.get<double>();
  if (value.is_string()) node.data = value.get<std::string>();
  if (value.is_array()) {
    TomlNode::Array elements;
    for (const Json& one : value)
      if (one.is_number_integer()) elements.push_back(TomlNode{one.get<std::int64_t>(), line});
    node.data = std::move(elements);
  }
  if (!value.is_object()) return node;
  TomlNode::Table table;
  if (depth < 2)
    for (const auto& [key, member] : value.items()) {
      const auto at = lines.find(key);
      const int its_line = at == lines.end() ? line : at->second;
      if (key == "sliding_window" && member.is_null())
        table.emplace(key, TomlNode{std::int64_t{0}, its_line});
      else if (!member.is_null())
        table.emplace(key, node_of(member, lines, its_line, depth + 1));
    }
  node.data = std::move(table);
  return node;
}

class Reader {
 public:
  explicit Reader(TomlTable table) : table_(std::move(table)) {}

  HfConfig read() {
    const std::string type = require<std::string>(table_, "model_type");
    if (type == "qwen2")
      throw table_.failure("model_type",
                           "expected \"gpt2\", \"llama\", \"mistral\", \"mixtral\", \"qwen3\" or \"qwen3_moe\", got "
                           "\"qwen2\", whose q, k and v have biases "
                           "and whose other layers have none, which Stretto's model cannot say");
    if (const std::string why = not_modelled(type); !why.empty())
      throw table_.failure("model_type", in_quotes(type) + ": " + why);
    const bool has_experts = type == "mixtral" || type == "qwen3_moe";
    if (!has_experts) refuse_not_modelled(table_);
    if (table_.has("quantization_config"))
      throw table_.failure("quantization_config", "expected weights that are not quantized, without this key");
    choice_or(table_, "model_type", "", {"gpt2", "llama", "mistral", "mixtral", "qwen3", "qwen3_moe"});
    if (type == "gpt2")
      read_gpt2();
    else
      read_llama(has_experts ? type == "mixtral" ? "mistral" : "qwen3" : type);
    if (has_experts) read_experts(type == "mixtral");
    for (const char* key : kHarmless) table_.has(key);
    for (const std::string& key : table_.keys())
      if (key.starts_with("_")) table_.has(key);
    table_.finish();
    Transformer& model = scenario_.model;
    model.padded_vocab_size = model.vocab_size;
    model.seq_length = model.max_position_embeddings;
    return {model, sliding_window_};
  }

 private:
  // Reads every key of a scenario that has a name in config.json. Absent keys keep their values.
  void read_keys(HfName ScenarioKey::*of_class) {
    for (const ScenarioKey& key : scenario_keys_of("model"))
      if (const HfName& hf = key.*of_class; *hf.name != '\0')
        read_field(table_, hf.name, key, scenario_, hf.is_required);
  }
  // Throws unless the key, or its class's default where it is absent, describes Stretto's model.
  void expect(const char* key, bool fallback, bool expected) {
    if (value_or<bool>(table_, key, fallback) != expected)
      throw table_.failure(key,
                           std::string("expected ") + (expected ? "true" : "false") + ", as Stretto's model has it");
  }
  void expect_epsilon(const char* key, double fallback) {
    const double given = value_or<double>(table_, key, fallback);
    if (given == kEpsilon) return;
    throw table_.has(key) ? table_.error(key, "1e-05, which Stretto's norms add")
                          : table_.failure(key,
                                           "expected 1e-05, which Stretto's norms add, got no such key, which "
                                           "stands for 1e-06");
  }
  void check_heads(const char* key, std::int64_t width) {
    if (width % scenario_.model.num_attention_heads != 0)
      throw table_.error(key, "a divisor of the width " + number(width));
  }

  void read_gpt2() {
    Transformer& model = scenario_.model;
    model.ffn_hidden_size = 0;
    model.hidden_dropout = model.attention_dropout = 0.1;
    read_keys(&ScenarioKey::gpt2);
    if (model.ffn_hidden_size == 0) model.ffn_hidden_size = 4 * model.hidden_size;
    const std::string activation = value_or<std::string>(table_, "activation_function", "gelu_new");
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
      throw table_.error("activation_function", "\"gelu_new\", Stretto's GELU");
    expect_epsilon("layer_norm_epsilon", kEpsilon);
    expect("scale_attn_weights", true, true);
    expect("scale_attn_by_inverse_layer_idx", false, false);
    expect("add_cross_attention", false, false);
    model.untie_embeddings_and_output_weights = !value_or<bool>(table_, "tie_word_embeddings", true);
    const Numbers probability{.min = 0, .max = 1, .below_max = true};
    if (value_or<double>(table_, "embd_pdrop", 0.1, probability) != model.hidden_dropout)
      throw table_.error("embd_pdrop", "resid_pdrop's " + Json(model.hidden_dropout).dump() +
                                           ": Stretto has one hidden_dropout for both");
    check_heads("n_head", model.hidden_size);
  }

  // Reads Llama's configuration, or that of a model that differs from Llama in the keys below.
  void read_llama(const std::string& type) {
    const bool is_mistral = type == "mistral", is_qwen = type == "qwen3";
    Transformer& model = scenario_.model;
    model = in_llama_style(model);
    if (is_mistral) require<std::int64_t>(table_, "num_key_value_heads");
    read_keys(&ScenarioKey::llama);
    model.num_query_groups = model.kv_heads();
    choice_or(table_, "hidden_act", "silu", {"silu"});
    expect_epsilon("rms_norm_eps", 1e-6);
    if (is_qwen)
      expect("attention_bias", false, false);  // biases of q, k, v and proj alone
    else
      expect("mlp_bias", false, model.add_bias_linear);
    model.untie_embeddings_and_output_weights = !value_or<bool>(table_, "tie_word_embeddings", false);
    if (model.num_attention_heads % model.num_query_groups != 0)
      throw table_.failure("num_key_value_heads", "expected a divisor of num_attention_heads " +
                                                      number(model.num_attention_heads) + ", got " +
                                                      number(model.num_query_groups));
    read_heads(is_qwen);
    model.rotary_base = rotary_base(table_, 1e4);
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      TomlTable rope = table_.section(key);
      if (!rope.present()) continue;
      model.rotary_base = rotary_base(rope, model.rotary_base);
      read_scaling(rope, model.rope_scaling);
      rope.finish();
    }
    if (is_qwen) {
      expect("use_sliding_window", false, false);
      for (const char* key : {"sliding_window", "max_window_layers", "layer_types"}) table_.has(key);
    }
    if (is_mistral && !table_.has("num_local_experts"))
      sliding_window_ = value_or<std::int64_t>(table_, "sliding_window", 4096, {.min = 0, .max = kMaxTokens});
  }
  // Both take the softmax of the chosen logits, which norm_topk_prob says of Qwen's. Its auxiliary loss is another than
  // Megatron-LM's, and off while output_router_logits is.
  void read_experts(bool is_mixtral) {
    Transformer& model = scenario_.model;
    Experts& experts = model.experts;
    const Integers counts{.min = 1, .max = kMaxExperts};
    const char* count = is_mixtral ? "num_local_experts" : "num_experts";
    experts.num_moe_experts = require<std::int64_t>(table_, count, counts);
    experts.moe_router_topk = require<std::int64_t>(table_, "num_experts_per_tok", counts);
    if (experts.moe_router_topk > experts.num_moe_experts)
      throw table_.error("num_experts_per_tok", "at most the " + number(experts.num_moe_experts) + " experts");
    expect("output_router_logits", false, false);
    for (const char* key : {"router_aux_loss_coef", "router_jitter_noise"}) table_.has(key);
    if (is_mixtral) {
      if (value_or<std::int64_t>(table_, "sliding_window", 0) != 0)
        throw table_.error("sliding_window", "null: attention over the whole sequence");
      return;
    }
    experts.moe_ffn_hidden_size = require<std::int64_t>(table_, "moe_intermediate_size", {.min = 1, .max = kMaxFfn});
    if (experts.moe_router_topk > 1) expect("norm_topk_prob", false, true);
    const auto every = value_or<std::int64_t>(table_, "decoder_sparse_step", 1, {.min = 1, .max = kMaxLayers});
    const auto dense = value_or<std::vector<std::int64_t>>(table_, "mlp_only_layers", {});
    std::vector<std::int64_t> has(static_cast<std::size_t>(model.num_layers));
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
      has[static_cast<std::size_t>(layer)] =
          (layer + 1) % every == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end();
    const bool are_all = std::find(has.begin(), has.end(), 0) == has.end();
    if (!are_all) experts.moe_layer_freq = std::move(has);
  }
  void read_heads(bool is_qwen) {
    Transformer& model = scenario_.model;
    model.qk_layernorm = is_qwen;
    if (!table_.has("head_dim") && !is_qwen) check_heads("num_attention_heads", model.hidden_size);
    const std::int64_t width =
        value_or<std::int64_t>(table_, "head_dim", is_qwen ? 128 : model.head_dim(), {.min = 1, .max = kMaxHeadDim});
    if (width % 2 != 0) throw table_.error("head_dim", "an even number, of which rope turns pairs");
    if (width * model.num_attention_heads != model.hidden_size) model.kv_channels = width;
  }
  // Reads `rope_type`, which older files call `type`, and the parameters of this type.
  static void read_scaling(TomlTable& rope, RopeScaling& scaling) {
    std::string type = "default";
    for (const char* key : {"type", "rope_type"})
      if (rope.has(key)) type = choice_or(rope, key, "", {"default", "linear", "llama3"});
    const Numbers factors{.min = 0, .max = 1e6, .above_min = true};
    const auto factor = [&](const char* key) { return require<double>(rope, key, factors); };
    if (type == "linear") scaling.interpolation_factor = factor("factor");
    if (type != "llama3") return;
    scaling.factor = factor("factor");
    scaling.low_freq_factor = factor("low_freq_factor");
    scaling.high_freq_factor = factor("high_freq_factor");
    if (!(scaling.high_freq_factor > scaling.low_freq_factor))
      throw rope.error("high_freq_factor", "more than low_freq_factor");
    scaling.original_max_position_embeddings =
        require<std::int64_t>(rope, "original_max_position_embeddings", {.min = 1, .max = kMaxTokens});
  }
  static double rotary_base(TomlTable& table, double fallback) {
    return value_or<double>(table, "rope_theta", fallback, {.min = 1, .max = 1e12, .above_min = true});
  }

  TomlTable table_;
  Scenario scenario_;  // the scenario's model
  std::int64_t sliding_window_ = 0;
};

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& name) {
  Json parsed;
  try {
    parsed = Json::parse(text);
  } catch (const Json::exception& error) {
    constexpr std::size_t kMostOfReason = 200;
    throw input_error(name + ": expected a config.json of Hugging Face's, got malformed JSON: " +
                      in_quotes(std::string(error.what()).substr(0, kMostOfReason)));
  }
  if (!parsed.is_object()) throw input_error(name + ": expected a config.json of Hugging Face's, got no JSON object");
  auto root = std::make_shared<const TomlNode>(node_of(parsed, lines_of(text), 1, 0));
  return Reader(TomlTable(root, root.get(), name, "")).read();
}

HfConfig read_hf_config(const std::string& path) {
  ReadFile file = ReadFile::open(path);
  if (file.size() > kTomlMaxBytes)
    throw input_error(path + ": expected a config.json of at most " + std::to_string(kTomlMaxBytes) + " bytes, got " +
                      std::to_string(file.size()));
  const std::vector<std::byte> bytes = std::move(file).take();
  return parse_hf_config(require_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path), path);
}

namespace {

// Whether a class of Hugging Face's has such experts, or the model has none. Mixtral's are in every layer, and have no
// width of their own.
bool has_experts_of_hf(const Transformer& model) {
  const Experts& experts = model.experts;
  if (!experts.any()) return true;
  const bool is_plain = experts.moe_router_score_function == RouterScore::softmax && !experts.moe_router_pre_softmax &&
                        experts.moe_router_topk_scaling_factor == 1 && experts.moe_router_num_groups == 0 &&
                        !experts.has_shared() && !model.add_bias_linear;
  const bool are_everywhere = experts.moe_layer_freq == std::vector<std::int64_t>{1};
  return is_plain && (model.qk_layernorm || (are_everywhere && model.expert_size() == model.ffn_hidden_size));
}

}  // namespace

HfStyle hf_style(const Transformer& model) {
  const bool has_positions = model.position_embedding_type == PositionEmbedding::learned_absolute,
             is_layer_norm = model.normalization == Normalization::layer_norm;
  if (has_positions && is_layer_norm && !model.swiglu && model.add_bias_linear &&
      model.kv_heads() == model.num_attention_heads && model.attention_size() == model.hidden_size &&
      !model.qk_layernorm)
    return HfStyle::gpt2;
  const bool is_mixture = model.qk_layernorm && model.add_bias_linear;
  if (!has_positions && !is_layer_norm && model.swiglu && !is_mixture && has_experts_of_hf(model))
    return HfStyle::llama;
  throw input_error(
      "expected a model of GPT-2's style (LayerNorm, learned positions, biases, no swiglu, as many heads of keys as of "
      "queries, hidden_size wide together) or Llama's (RMSNorm, rope, swiglu; with norms of q and k no biases), got a "
      "mixture that Hugging Face has no names for");
}

std::string write_hf_config(const Transformer& model) {
  Scenario scenario;
  scenario.model = model;
  const bool is_gpt2 = hf_style(model) == HfStyle::gpt2, is_tied = !model.untie_embeddings_and_output_weights,
             is_qwen = model.qk_layernorm;
  const Experts& experts = model.experts;
  const char* const name = is_gpt2         ? "GPT2LMHeadModel"
                           : experts.any() ? is_qwen ? "Qwen3MoeForCausalLM" : "MixtralForCausalLM"
                           : is_qwen       ? "Qwen3ForCausalLM"
                                           : "LlamaForCausalLM";
  const char* const type = is_gpt2         ? "gpt2"
                           : experts.any() ? is_qwen ? "qwen3_moe" : "mixtral"
                           : is_qwen       ? "qwen3"
                                           : "llama";
  nlohmann::ordered_json json = {{"architectures", {name}}, {"model_type", type}};
  for (const ScenarioKey& key : scenario_keys_of("model"))
    if (const HfName& hf = is_gpt2 ? key.gpt2 : key.llama; *hf.name != '\0') json[hf.name] = value_of(key, scenario);
  if (is_gpt2) {
    json["activation_function"] = "gelu_new";
    json["layer_norm_epsilon"] = kEpsilon;
    json["embd_pdrop"] = model.hidden_dropout;
    json["scale_attn_weights"] = true;
  } else {
    json["head_dim"] = model.head_dim();
    json["hidden_act"] = "silu";
    json["rms_norm_eps"] = kEpsilon;
    json["rope_theta"] = model.rotary_base;
    if (!is_qwen && !experts.any()) json["mlp_bias"] = model.add_bias_linear;
    if (experts.any()) {
      json[is_qwen ? "num_experts" : "num_local_experts"] = experts.num_moe_experts;
      json["num_experts_per_tok"] = experts.moe_router_topk;
    }
    if (experts.any() && is_qwen) {
      json["moe_intermediate_size"] = model.expert_size();
      json["norm_topk_prob"] = true;
      std::vector<std::int64_t> dense;
      for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
        if (!experts.in_layer(layer)) dense.push_back(layer);
      json["mlp_only_layers"] = dense;
    }
    const RopeScaling& scaling = model.rope_scaling;
    if (scaling.is_linear() && scaling.is_llama3())
      throw input_error("expected one scaling of rotary positions, got two, which Hugging Face has no name for");
    if (scaling.is_linear()) json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.interpolation_factor}};
    if (scaling.is_llama3())
      json["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_freq_factor},
                              {"high_freq_factor", scaling.high_freq_factor},
                              {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
  }
  json["tie_word_embeddings"] = is_tied;
  json["initializer_range"] = kInitializerStd;
  // Ids of special tokens belong to a tokenizer, which Stretto does not have; without these nulls GPT-2's or Llama's
  // ids would apply.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = "float32";
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

}  // namespace stretto
