#include "model/scenario/hf_config.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json_cost.hpp"
#include "base/read_file.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"
#include "model/scenario/hf_families.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/not_modelled.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

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
                                     "use_cache",
                                     "attn_implementation",
                                     "begin_suppress_tokens",
                                     "chunk_size_feed_forward",
                                     "cache_implementation",
                                     "decoder_start_token_id",
                                     "embedding_size",
                                     "image_token_id",
                                     "is_llama_config",
                                     "keys_to_ignore_at_inference",
                                     "model_max_length",
                                     "rope_interleaved",
                                     "sep_token_id",
                                     "tokenizer_model_max_length",
                                     "unk_token_id",
                                     "use_flash_attention",
                                     "use_parallel_residual",
                                     "use_return_dict",
                                     "video_token_id"};

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

// Returns the text with numbers in place of the words Infinity and NaN, which Python's json writes.
std::string with_finite_numbers(std::string_view text) {
  std::string made;
  bool is_quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_quoted && c == '\\' && at + 1 < text.size()) {
      made += c;
      made += text[++at];
      continue;
    }
    if (c == '"') is_quoted = !is_quoted;
    const std::string_view rest = text.substr(at);
    if (!is_quoted && rest.starts_with("Infinity")) {
      made += "1e308";
      at += std::string_view("Infinity").size() - 1;
    } else if (!is_quoted && rest.starts_with("NaN")) {
      made += "null";
      at += 2;
    } else {
      made += c;
    }
  }
  return made;
}

// Converts a JSON value. A nested table is converted one level deep; deeper values keep only their kind, and arrays
// their integers. null is an absent key, except for sliding_window, whose absence means a window, and for q_lora_rank,
// whose absence means a rank.
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
      if ((key == "sliding_window" || key == "q_lora_rank") && member.is_null())
        table.emplace(key, TomlNode{std::int64_t{0}, its_line});
      else if (!member.is_null())
        table.emplace(key, node_of(member, lines, its_line, depth + 1));
    }
  node.data = std::move(table);
  return node;
}

class Reader {
 public:
  Reader(TomlTable table, HfFamily family) : table_(std::move(table)), family_(std::move(family)) {}

  HfConfig read() {
    require<std::string>(table_, "model_type");
    const std::string& like = family_.like;
    const std::string experts = has_layers_of('E') ? family_.experts : std::string("none");
    const bool is_deepseek = like.starts_with("deepseek");
    if (family_.experts == "none" && !is_deepseek) refuse_not_modelled(table_);
    if (experts != family_.experts)  // a hybrid without layers of experts
      for (const char* key : {"first_k_dense_replace", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
                              "moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_group", "topk_group",
                              "norm_topk_prob", "routed_scaling_factor"})
        table_.has(key);
    if (like == "gpt2")
      read_gpt2();
    else if (is_deepseek)
      read_deepseek();
    else
      read_llama(like == "mixtral" ? "mistral" : like == "qwen3_moe" ? "qwen3" : like);
    if (experts == "mixtral" || experts == "qwen3_moe") read_experts(experts == "mixtral");
    if (experts.starts_with("deepseek")) read_experts_of_deepseek(experts == "deepseek_v3");
    read_hybrid();
    take_switches();
    take_kinds_of_attention();
    for (const char* key : kHarmless) table_.has(key);
    for (const std::string& key : table_.keys())
      if (key.starts_with("_")) table_.has(key);
    Transformer& model = scenario_.model;
    model.left_out = family_.left_out;
    // A slip of a known key stays an error; another key is most likely of the family's own code.
    if (const std::vector<std::string> unknown = table_.take_unknown(); !unknown.empty())
      model.left_out.push_back(keys_text(unknown));
    table_.finish();
    model.padded_vocab_size = model.vocab_size;
    model.seq_length = model.max_position_embeddings;
    return {model};
  }

 private:
  // Returns whether a hybrid has layers of this letter (Mamba::hybrid_layer_pattern); a model that is none may have
  // any.
  bool has_layers_of(char letter) {
    const auto pattern = value_or<std::string>(table_, "hybrid_override_pattern", "");
    return pattern.empty() || pattern.find(letter) != std::string::npos;
  }
  // Reads the layers of a hybrid with Mamba-2 (Nemotron-H's configuration).
  void read_hybrid() {
    Transformer& model = scenario_.model;
    Mamba& mamba = model.mamba;
    mamba.hybrid_layer_pattern = value_or<std::string>(table_, "hybrid_override_pattern", "");
    if (mamba.hybrid_layer_pattern.empty()) return;
    if (mamba.hybrid_layer_pattern.find_first_not_of("M*-E") != std::string::npos)
      throw table_.error("hybrid_override_pattern", "the letters M, *, - and E");
    if (std::ssize(mamba.hybrid_layer_pattern) != model.num_layers)
      throw table_.error("hybrid_override_pattern",
                         "a letter for each of the num_hidden_layers " + number(model.num_layers) + " layers");
    const auto size = [&](const char* key, std::int64_t most) {
      return require<std::int64_t>(table_, key, {.min = 1, .max = most});
    };
    if (value_or<std::int64_t>(table_, "conv_kernel", Mamba::kConvTaps) != Mamba::kConvTaps)
      throw table_.error("conv_kernel", "4 taps");
    mamba.mamba_num_heads = size("mamba_num_heads", kMaxHidden);
    mamba.mamba_head_dim = size("mamba_head_dim", kMaxHeadDim);
    mamba.mamba_state_dim = size("ssm_state_size", kMaxHeadDim);
    mamba.mamba_num_groups = size("n_groups", kMaxHidden);
    if (mamba.mamba_num_heads % mamba.mamba_num_groups != 0)
      throw table_.error("n_groups", "a divisor of mamba_num_heads " + number(mamba.mamba_num_heads));
    if (const auto shared =
            value_or<std::int64_t>(table_, "moe_shared_expert_intermediate_size", 0, {.min = 0, .max = kMaxFfn});
        shared > 0 && model.experts.has_shared())
      model.experts.moe_shared_expert_intermediate_size = shared;
  }
  // Reads every key of a scenario that has a name in config.json. Absent keys keep their values.
  void read_keys(HfName ScenarioKey::*of_class) {
    for (const ScenarioKey& key : scenario_keys_of("model"))
      if (const HfName& hf = key.*of_class; *hf.name != '\0')
        read_field(table_, hf.name, key, scenario_, hf.is_required);
  }
  void take_switches() {
    Transformer& model = scenario_.model;
    if (family_.has_layer_norm) model.normalization = Normalization::layer_norm;
    if (family_.has_plain_mlp) model.swiglu = false;
    if (family_.has_all_biases) model.add_bias_linear = true;
    if (family_.has_head_norms) model.qk_layernorm = true;
  }
  // Sets the keys of [model] that the family's row has, and which layers have windows or no rotary positions.
  void take_kinds_of_attention() {
    Transformer& model = scenario_.model;
    for (const auto& [name, value] : family_.set)
      if (!set_identity(scenario_key("model", name), scenario_, identity_text(value)))
        throw table_.failure("model_type",
                             "expected a value of [model] " + name + ", got " + value.dump().substr(0, 40));
    model.attention_chunk_size =
        value_or<std::int64_t>(table_, "attention_chunk_size", 0, {.min = 0, .max = kMaxTokens});
    std::vector<std::int64_t> windows = family_.windows, no_rope = family_.no_rope;
    for (std::vector<std::int64_t>* pattern : {&windows, &no_rope})
      if (std::count(pattern->begin(), pattern->end(), 1) > 0 && std::ssize(*pattern) != model.num_layers)
        throw table_.failure("num_hidden_layers", "expected as many layers as there are kinds of layers, " +
                                                      number(std::ssize(*pattern)) + ", got " +
                                                      number(model.num_layers));
    const auto count = [](const std::vector<std::int64_t>& of) { return std::count(of.begin(), of.end(), 1); };
    const bool is_none = !windows.empty() && count(windows) == 0;
    model.sliding_window = is_none ? 0 : sliding_window_;
    if (is_none) model.attention_chunk_size = 0;
    if (model.attention_chunk_size > 0) model.sliding_window = 0;
    if (model.limits_keys() && count(windows) > 0 && count(windows) < std::ssize(windows))
      model.window_attn_skip_freq = std::move(windows);
    if (count(no_rope) == std::ssize(no_rope) && !no_rope.empty())
      model.no_rope_freq = {1};
    else if (count(no_rope) > 0)
      model.no_rope_freq = std::move(no_rope);
  }
  static std::string keys_text(const std::vector<std::string>& keys) {
    constexpr std::size_t kMost = 8;
    std::string text;
    for (std::size_t i = 0; i < keys.size() && i < kMost; ++i) text += (i > 0 ? ", " : "") + keys[i].substr(0, 60);
    if (keys.size() > kMost) text += ", …";
    return "keys of config.json that are not known here are left out: " + text;
  }
  // Throws unless the key, or its class's default where it is absent, describes Stretto's model.
  void expect(const char* key, bool fallback, bool expected) {
    if (value_or<bool>(table_, key, fallback) != expected)
      throw table_.failure(key,
                           std::string("expected ") + (expected ? "true" : "false") + ", as Stretto's model has it");
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
    model.norm_epsilon = 1e-6;
    if (is_mistral) require<std::int64_t>(table_, "num_key_value_heads");
    read_keys(&ScenarioKey::llama);
    model.num_query_groups = model.kv_heads();
    choice_or(table_, "hidden_act", "silu", {"silu"});
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
    read_rope([&](TomlTable& rope) { read_scaling(rope, model.rope_scaling); });
    table_.has("layer_types");
    if (is_qwen) {
      expect("use_sliding_window", false, false);
      for (const char* key : {"sliding_window", "max_window_layers", "layer_types"}) table_.has(key);
    }
    if ((is_mistral && !table_.has("num_local_experts")) || (!is_qwen && table_.has("sliding_window")) ||
        !family_.windows.empty())
      sliding_window_ = value_or<std::int64_t>(table_, "sliding_window", 4096, {.min = 0, .max = kMaxTokens});
  }
  template <class ReadScaling>
  void read_rope(ReadScaling read_scaling_of) {
    Transformer& model = scenario_.model;
    model.rotary_base = rotary_base(table_, 1e4);
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      TomlTable rope = table_.section(key);
      if (!rope.present()) continue;
      model.rotary_base = rotary_base(rope, model.rotary_base);
      read_scaling_of(rope);
      rope.finish();
    }
  }
  void read_deepseek() {
    Transformer& model = scenario_.model;
    model = in_llama_style(model);
    model.norm_epsilon = 1e-6;
    model.qk_layernorm = model.latent.multi_latent_attention = true;
    read_keys(&ScenarioKey::llama);
    choice_or(table_, "hidden_act", "silu", {"silu"});
    expect("attention_bias", false, false);
    expect("rope_interleave", true, true);
    model.untie_embeddings_and_output_weights = !value_or<bool>(table_, "tie_word_embeddings", false);
    if (model.kv_heads() != model.num_attention_heads)
      throw table_.error("num_key_value_heads", "num_attention_heads " + number(model.num_attention_heads));
    LatentAttention& latent = model.latent;
    const auto width = [&](const char* key, std::int64_t fallback, std::int64_t least = 1) {
      return value_or<std::int64_t>(table_, key, fallback, {.min = least, .max = kMaxHidden});
    };
    latent.q_lora_rank = width("q_lora_rank", 1536, 0);
    latent.kv_lora_rank = width("kv_lora_rank", 512);
    latent.qk_head_dim = width("qk_nope_head_dim", 128);
    latent.qk_pos_emb_head_dim = width("qk_rope_head_dim", 64);
    latent.v_head_dim = width("v_head_dim", 128);
    if (latent.qk_pos_emb_head_dim % 2 != 0) throw table_.error("qk_rope_head_dim", "an even number");
    for (const char* key : {"head_dim", "qk_head_dim"}) table_.has(key);  // follow from these
    read_rope([&](TomlTable& rope) { read_yarn(rope, latent.yarn); });
    model.num_nextn_predict_layers =
        value_or<std::int64_t>(table_, "num_nextn_predict_layers", 0, {.min = 0, .max = kMaxLayers});
  }
  static void read_yarn(TomlTable& rope, YarnScaling& yarn) {
    std::string type = "default";
    for (const char* key : {"type", "rope_type"})
      if (rope.has(key)) type = choice_or(rope, key, "", {"default", "yarn"});
    if (type != "yarn") return;
    const Numbers factors{.min = 0, .max = 1e6, .above_min = true}, growths{.min = 0, .max = 1e6};
    yarn.factor = require<double>(rope, "factor", factors);
    yarn.beta_fast = value_or<double>(rope, "beta_fast", 32, factors);
    yarn.beta_slow = value_or<double>(rope, "beta_slow", 1, factors);
    yarn.mscale = value_or<double>(rope, "mscale", 1, growths);
    yarn.mscale_all_dim = value_or<double>(rope, "mscale_all_dim", 0, growths);
    yarn.original_max_position_embeddings =
        require<std::int64_t>(rope, "original_max_position_embeddings", {.min = 1, .max = kMaxTokens});
    if (!(yarn.beta_fast > yarn.beta_slow)) throw rope.error("beta_fast", "more than beta_slow");
  }
  // DeepSeek-V2 takes the softmax of all logits, and then all scores as they are or divided by the chosen ones' sum;
  // DeepSeek-V3 sigmoids. Their losses of the router are not Megatron-LM's.
  void read_experts_of_deepseek(bool is_v3) {
    Transformer& model = scenario_.model;
    Experts& experts = model.experts;
    const Integers counts{.min = 1, .max = kMaxExperts};
    experts.num_moe_experts = require<std::int64_t>(table_, "n_routed_experts", counts);
    experts.moe_router_topk = require<std::int64_t>(table_, "num_experts_per_tok", counts);
    experts.moe_ffn_hidden_size = require<std::int64_t>(table_, "moe_intermediate_size", {.min = 1, .max = kMaxFfn});
    if (experts.moe_router_topk > experts.num_moe_experts)
      throw table_.error("num_experts_per_tok", "at most the " + number(experts.num_moe_experts) + " experts");
    const auto shared = value_or<std::int64_t>(table_, "n_shared_experts", 0, {.min = 0, .max = kMaxExperts});
    if (shared * experts.moe_ffn_hidden_size > kMaxFfn) throw table_.error("n_shared_experts", "less width together");
    experts.moe_shared_expert_intermediate_size = shared * experts.moe_ffn_hidden_size;
    const bool is_sigmoid =
        choice_or(table_, "scoring_func", is_v3 ? "sigmoid" : "softmax", {"sigmoid", "softmax"}) == "sigmoid";
    const std::string method =
        choice_or(table_, "topk_method", is_v3 ? "noaux_tc" : "greedy", {"noaux_tc", "greedy", "group_limited_greedy"});
    if (is_sigmoid != (method == "noaux_tc"))
      throw table_.failure("topk_method",
                           "expected \"noaux_tc\" with sigmoids, else \"greedy\": groups by their "
                           "best expert alone are not modelled");
    if (method == "group_limited_greedy")
      throw table_.failure("topk_method",
                           "expected \"greedy\" or \"noaux_tc\", got \"group_limited_greedy\": "
                           "groups by their best expert alone are not modelled");
    if (is_sigmoid) experts.moe_router_score_function = RouterScore::sigmoid;
    experts.moe_router_enable_expert_bias = is_sigmoid;
    const bool is_normalised = value_or<bool>(table_, "norm_topk_prob", is_v3);
    if (is_sigmoid && !is_normalised) expect("norm_topk_prob", is_normalised, true);
    experts.moe_router_pre_softmax = !is_sigmoid && !is_normalised;
    const auto scaling =
        value_or<double>(table_, "routed_scaling_factor", 1, {.min = 0, .max = 1e6, .above_min = true});
    if (is_sigmoid || !is_normalised) experts.moe_router_topk_scaling_factor = scaling;
    const auto groups = value_or<std::int64_t>(table_, "n_group", 1, counts),
               used = value_or<std::int64_t>(table_, "topk_group", 1, counts);
    if (is_sigmoid && groups > 1) {
      if (experts.moe_router_topk != 2 * used)
        throw table_.error("topk_group", "half of num_experts_per_tok, as groups count by their two best experts");
      experts.moe_router_num_groups = groups;
      experts.moe_router_group_topk = used;
    }
    const auto dense = value_or<std::int64_t>(table_, "first_k_dense_replace", is_v3 ? 3 : 0,
                                              {.min = 0, .max = model.num_layers}),
               every = value_or<std::int64_t>(table_, "moe_layer_freq", 1, {.min = 1, .max = kMaxLayers});
    std::vector<std::int64_t> has(static_cast<std::size_t>(model.num_layers));
    const auto nth = value_or<std::int64_t>(table_, "interleave_moe_layer_step", 1, {.min = 1, .max = kMaxLayers});
    for (std::int64_t layer = dense; layer < model.num_layers; ++layer)
      has[static_cast<std::size_t>(layer)] = layer % every == 0 && (layer + 1) % nth == 0;
    if (std::find(has.begin(), has.end(), 0) != has.end()) experts.moe_layer_freq = std::move(has);
    expect("output_router_logits", false, false);
    for (const char* key : {"aux_loss_alpha", "router_aux_loss_coef", "seq_aux", "ep_size"}) table_.has(key);
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
    if (is_mixtral) {  // Granite's has an expert that all tokens go through
      experts.moe_shared_expert_intermediate_size =
          value_or<std::int64_t>(table_, "shared_intermediate_size", 0, {.min = 0, .max = kMaxFfn});
      return;
    }
    experts.moe_ffn_hidden_size = require<std::int64_t>(table_, "moe_intermediate_size", {.min = 1, .max = kMaxFfn});
    // Scores that are not divided by the chosen ones' sum are those of the softmax over all experts.
    experts.moe_router_pre_softmax = experts.moe_router_topk > 1 && !value_or<bool>(table_, "norm_topk_prob", false);
    table_.has("norm_topk_prob");
    if (const auto shared =
            value_or<std::int64_t>(table_, "shared_expert_intermediate_size", 0, {.min = 0, .max = kMaxFfn});
        shared > 0) {  // Qwen2's, times a sigmoid of its own
      experts.moe_shared_expert_intermediate_size = shared;
      experts.moe_shared_expert_gate = true;
    }
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
  HfFamily family_;
  Scenario scenario_;  // the scenario's model
  std::int64_t sliding_window_ = 0;
};

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& name) {
  Budget budget(name);
  charge_json(text, budget);
  Json parsed;
  try {
    parsed = Json::parse(with_finite_numbers(text));
  } catch (const Json::exception& error) {
    constexpr std::size_t kMostOfReason = 200;
    throw input_error(name + ": expected a config.json of Hugging Face's, got malformed JSON: " +
                      in_quotes(std::string(error.what()).substr(0, kMostOfReason)));
  }
  if (!parsed.is_object()) throw input_error(name + ": expected a config.json of Hugging Face's, got no JSON object");
  Lines lines = lines_of(text);
  const auto at = lines.find("model_type");
  const std::string place = name + ":" + std::to_string(at == lines.end() ? 1 : at->second) + ": model_type";
  HfFamily family = take_family(parsed, place, [&](const std::string& from, const std::string& to) {
    if (const auto line = lines.find(from); line != lines.end()) lines.emplace(to, line->second);
  });
  auto root = std::make_shared<const TomlNode>(node_of(parsed, lines, 1, 0));
  return Reader(TomlTable(root, root.get(), name, ""), std::move(family)).read();
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

// Layers without experts come first.
bool has_experts_of_deepseek(const Transformer& model) {
  const Experts& experts = model.experts;
  if (!experts.any() || experts.moe_shared_expert_gate || !model.latent.any()) return false;
  for (std::int64_t layer = 1; layer < model.num_layers; ++layer)
    if (experts.in_layer(layer - 1) && !experts.in_layer(layer)) return false;
  const bool is_whole = experts.moe_shared_expert_intermediate_size % model.expert_size() == 0;
  if (experts.moe_router_score_function == RouterScore::sigmoid)
    return is_whole && experts.moe_router_enable_expert_bias &&
           (experts.moe_router_num_groups == 0 || experts.moe_router_topk == 2 * experts.moe_router_group_topk);
  return is_whole && experts.moe_router_num_groups == 0 &&
         (experts.moe_router_pre_softmax || experts.moe_router_topk_scaling_factor == 1);
}

// Whether a class of Hugging Face's has such experts, or the model has none. Mixtral's are in every layer, and have no
// width of their own.
bool has_experts_of_hf(const Transformer& model) {
  const Experts& experts = model.experts;
  if (model.latent.any()) return has_experts_of_deepseek(model);
  if (!experts.any()) return true;
  const bool is_plain = experts.moe_router_score_function == RouterScore::softmax && !experts.moe_router_pre_softmax &&
                        experts.moe_router_topk_scaling_factor == 1 && experts.moe_router_num_groups == 0 &&
                        !experts.has_shared() && !model.add_bias_linear;
  const bool are_everywhere = experts.moe_layer_freq == std::vector<std::int64_t>{1};
  return is_plain && (model.qk_layernorm || (are_everywhere && model.expert_size() == model.ffn_hidden_size));
}

}  // namespace

HfStyle hf_style(const Transformer& model) {
  if (model.gated_delta.any() || !model.mamba.hybrid_layer_pattern.empty())
    throw input_error("expected a model without linear attention: its names are not written yet");
  if (model.has_score_rules() || model.norm_places != NormPlaces::pre || model.qk_layernorm_full_width ||
      !model.no_rope_freq.empty() || (model.add_qkv_bias && (model.qk_layernorm || model.experts.any())))
    throw input_error(
        "expected a model without windows, chunks, sinks and caps of attention, with norms before sublayers, norms of "
        "q and k by head, rotary positions in all layers, and add_qkv_bias only without these norms and experts, got "
        "another one, of which no config.json is written yet");
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

namespace {

void write_deepseek(const Transformer& model, nlohmann::ordered_json& json) {
  const LatentAttention& latent = model.latent;
  const Experts& experts = model.experts;
  const bool is_sigmoid = experts.moe_router_score_function == RouterScore::sigmoid;
  json["q_lora_rank"] = latent.q_lora_rank > 0 ? nlohmann::ordered_json(latent.q_lora_rank) : nullptr;
  json["kv_lora_rank"] = latent.kv_lora_rank;
  json["qk_nope_head_dim"] = latent.qk_head_dim;
  json["qk_rope_head_dim"] = latent.qk_pos_emb_head_dim;
  json["v_head_dim"] = latent.v_head_dim;
  if (const YarnScaling& yarn = latent.yarn; yarn.factor != 1)
    json["rope_scaling"] = {{"type", "yarn"},
                            {"factor", yarn.factor},
                            {"beta_fast", yarn.beta_fast},
                            {"beta_slow", yarn.beta_slow},
                            {"mscale", yarn.mscale},
                            {"mscale_all_dim", yarn.mscale_all_dim},
                            {"original_max_position_embeddings", yarn.original_max_position_embeddings}};
  json["n_routed_experts"] = experts.num_moe_experts;
  json["num_experts_per_tok"] = experts.moe_router_topk;
  json["moe_intermediate_size"] = model.expert_size();
  json["n_shared_experts"] = experts.moe_shared_expert_intermediate_size / model.expert_size();
  std::int64_t dense = 0;
  while (dense < model.num_layers && !experts.in_layer(dense)) ++dense;
  json["first_k_dense_replace"] = dense;
  json["moe_layer_freq"] = 1;
  json["scoring_func"] = is_sigmoid ? "sigmoid" : "softmax";
  json["topk_method"] = is_sigmoid ? "noaux_tc" : "greedy";
  json["norm_topk_prob"] = is_sigmoid || !experts.moe_router_pre_softmax;
  json["routed_scaling_factor"] = experts.moe_router_topk_scaling_factor;
  json["n_group"] = std::max<std::int64_t>(1, experts.moe_router_num_groups);
  json["topk_group"] = std::max<std::int64_t>(1, experts.moe_router_group_topk);
  json["num_nextn_predict_layers"] = 0;
}

}  // namespace

std::string write_hf_config(const Transformer& model) {
  Scenario scenario;
  scenario.model = model;
  const bool is_gpt2 = hf_style(model) == HfStyle::gpt2, is_tied = !model.untie_embeddings_and_output_weights,
             is_latent = model.latent.any(), is_qwen = model.qk_layernorm && !is_latent;
  const Experts& experts = model.experts;
  const bool is_v3 = experts.moe_router_score_function == RouterScore::sigmoid;
  const char* const name = is_gpt2         ? "GPT2LMHeadModel"
                           : is_latent     ? is_v3 ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM"
                           : experts.any() ? is_qwen ? "Qwen3MoeForCausalLM" : "MixtralForCausalLM"
                           : is_qwen       ? "Qwen3ForCausalLM"
                           : model.add_qkv_bias && !model.add_bias_linear ? "Qwen2ForCausalLM"
                                                                          : "LlamaForCausalLM";
  const char* const type = is_gpt2                                        ? "gpt2"
                           : is_latent                                    ? is_v3 ? "deepseek_v3" : "deepseek_v2"
                           : experts.any()                                ? is_qwen ? "qwen3_moe" : "mixtral"
                           : is_qwen                                      ? "qwen3"
                           : model.add_qkv_bias && !model.add_bias_linear ? "qwen2"
                                                                          : "llama";
  nlohmann::ordered_json json = {{"architectures", {name}}, {"model_type", type}};
  for (const ScenarioKey& key : scenario_keys_of("model"))
    if (const HfName& hf = is_gpt2 ? key.gpt2 : key.llama; *hf.name != '\0') json[hf.name] = value_of(key, scenario);
  if (is_gpt2) {
    json["activation_function"] = "gelu_new";
    json["embd_pdrop"] = model.hidden_dropout;
    json["scale_attn_weights"] = true;
  } else {
    if (!is_latent) json["head_dim"] = model.head_dim();
    json["hidden_act"] = "silu";
    json["rope_theta"] = model.rotary_base;
    if (is_latent) write_deepseek(model, json);
    if (!is_qwen && !experts.any()) json["mlp_bias"] = model.add_bias_linear;
    if (experts.any() && !is_latent) {
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
