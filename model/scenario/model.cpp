#include <algorithm>

#include "model/scenario/hf_config.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

// Reads the keys of rope scaling. Their names are Megatron-LM's; where it has no flag, Hugging Face's with
// "rope_scaling_" in front.
void read_rope_scaling(TomlTable& table, KeyReader& keys, Transformer& model) {
  RopeScaling& scaling = model.rope_scaling;
  const auto needs = [&](const char* key, bool condition, const std::string& expected) {
    if (table.has(key) && !condition) throw table.failure(key, "expected " + expected + " as well");
  };
  const bool is_rope = model.position_embedding_type == PositionEmbedding::rope;
  constexpr const char *kUse = "use_rope_scaling", *kLinear = "rotary_seq_len_interpolation_factor";
  for (const char* key : {kUse, kLinear}) needs(key, is_rope, "position_embedding_type = \"rope\"");
  constexpr double kFactor = 8;  // default of Llama 3.1 and Megatron-LM
  const bool was_used = scaling.is_llama3(), is_used = value_or<bool>(table, kUse, was_used);
  if (!is_used) scaling = {.interpolation_factor = scaling.interpolation_factor};
  if (is_used && !was_used) scaling.factor = kFactor;
  constexpr const char *kFactors[] = {"rope_scaling_factor", "rope_scaling_low_freq_factor",
                                      "rope_scaling_high_freq_factor"},
                       *kPositions = "rope_scaling_original_max_position_embeddings";
  for (const char* key : kFactors) needs(key, is_used, "use_rope_scaling = true");
  needs(kPositions, is_used, "use_rope_scaling = true");
  for (const char* key : kFactors) keys.read(key);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor))
    throw table.failure(
        table.has("rope_scaling_high_freq_factor") ? "rope_scaling_high_freq_factor" : "rope_scaling_low_freq_factor",
        "expected a high_freq_factor above the low_freq_factor");
  keys.read(kPositions);
  keys.read(kLinear);
  if (scaling.is_linear() && scaling.is_llama3())
    throw table.failure(table.has(kLinear) ? kLinear : kUse, "expected it or the other scaling of rope, got both");
}

// Checks the keys of multi-latent attention against others (MLATransformerConfig of transformer_config.py).
void check_latent(TomlTable& table, const Transformer& model) {
  const LatentAttention& latent = model.latent;
  if (!latent.any()) {
    for (const char* key :
         {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rotary_scaling_factor",
          "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings"})
      if (table.has(key)) throw table.failure(key, "expected multi_latent_attention = true as well");
    return;
  }
  const char* key = "multi_latent_attention";
  const auto expect = [&](bool holds, const char* of, const std::string& expected) {
    if (!holds) throw table.failure(of, "expected " + expected);
  };
  expect(model.position_embedding_type == PositionEmbedding::rope, key, "position_embedding_type = \"rope\" as well");
  expect(model.rope_scaling == RopeScaling{}, key, "no scaling of rotary positions but rotary_scaling_factor");
  expect(model.qk_layernorm, key, "qk_layernorm = true as well: latent vectors without norms are not modelled yet");
  expect(!model.add_bias_linear, key, "add_bias_linear = false as well: its products have no biases");
  expect(model.kv_heads() == model.num_attention_heads, "num_query_groups",
         "num_attention_heads " + number(model.num_attention_heads) + " with multi_latent_attention, got " +
             number(model.kv_heads()));
  expect(model.kv_channels == 0, "kv_channels", "qk_head_dim and v_head_dim in its place with multi_latent_attention");
  expect(latent.qk_pos_emb_head_dim % 2 == 0, "qk_pos_emb_head_dim",
         "an even number for rope, got " + number(latent.qk_pos_emb_head_dim));
  expect(latent.yarn.beta_fast > latent.yarn.beta_slow, "beta_slow", "less than beta_fast");
  for (const char* of_yarn : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings"})
    expect(latent.yarn.factor != 1 || !table.has(of_yarn), of_yarn, "rotary_scaling_factor as well");
}

// Checks the keys of linear attention and of hybrids (transformer_config.py of Megatron-LM).
void check_linear(TomlTable& table, const Transformer& model) {
  const auto expect = [&](bool holds, const char* key, const std::string& expected) {
    if (!holds) throw table.failure(key, "expected " + expected);
  };
  const GatedDelta& delta = model.gated_delta;
  const std::vector<std::int64_t>& freq = delta.linear_attention_freq;
  if (!delta.any())
    for (const char* key : {"linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
                            "linear_num_key_heads", "linear_num_value_heads"})
      expect(!table.has(key), key, "linear_attention_freq as well");
  expect(freq.size() != 1 || freq[0] >= 2, "linear_attention_freq",
         "2 or more, or an array, got " + number(freq.empty() ? 0 : freq[0]));
  expect(freq.size() < 2 || (std::ssize(freq) == model.num_layers &&
                             std::all_of(freq.begin(), freq.end(), [](auto one) { return one == 0 || one == 1; })),
         "linear_attention_freq",
         "a number, or 0 or 1 for each of the num_layers " + number(model.num_layers) + " layers, got " +
             number(std::ssize(freq)) + " numbers");
  expect(!delta.any() || delta.linear_num_value_heads % delta.linear_num_key_heads == 0, "linear_num_value_heads",
         "a multiple of linear_num_key_heads " + number(delta.linear_num_key_heads) + ", got " +
             number(delta.linear_num_value_heads));
  const Mamba& mamba = model.mamba;
  const std::string& pattern = mamba.hybrid_layer_pattern;
  const char* of_pattern = "hybrid_layer_pattern";
  if (!mamba.any())
    for (const char* key : {"mamba_state_dim", "mamba_head_dim", "mamba_num_groups", "mamba_num_heads"})
      expect(!table.has(key), key, "hybrid_layer_pattern with an M as well");
  if (pattern.empty()) return;
  expect(pattern.find_first_not_of("M*-E") == std::string::npos, of_pattern,
         "the letters M, *, - and E, got \"" + pattern + "\"");
  expect(std::ssize(pattern) == model.num_layers, of_pattern,
         "a letter for each of the num_layers " + number(model.num_layers) + " layers, got " +
             number(std::ssize(pattern)));
  expect((pattern.find('E') == std::string::npos) == !model.experts.any(), of_pattern,
         model.experts.any() ? "an E with num_moe_experts" : "num_moe_experts as well with an E");
  expect(!delta.any(), "linear_attention_freq", "it or hybrid_layer_pattern, got both");
  expect(!mamba.any() || mamba.mamba_num_heads % mamba.mamba_num_groups == 0, "mamba_num_heads",
         "a multiple of mamba_num_groups " + number(mamba.mamba_num_groups) + ", got " + number(mamba.mamba_num_heads));
}

// Checks what Megatron-LM checks of experts (transformer_config.py, moe_utils.py), and refuses what is not modelled.
void check_experts(TomlTable& table, const Transformer& model) {
  const Experts& experts = model.experts;
  const auto expect = [&](bool holds, const char* key, const std::string& expected) {
    if (!holds) throw table.failure(key, "expected " + expected);
  };
  if (!experts.any()) {
    for (const std::string& key : table.keys())
      expect(!key.starts_with("moe_"), key.c_str(), "num_moe_experts as well, got a model of dense MLPs");
    return;
  }
  const std::int64_t count = experts.num_moe_experts, topk = experts.moe_router_topk,
                     groups = experts.moe_router_num_groups, used = experts.moe_router_group_topk;
  const bool is_softmax = experts.moe_router_score_function == RouterScore::softmax;
  const std::vector<std::int64_t>& freq = experts.moe_layer_freq;
  expect(topk <= count, "moe_router_topk", "at most num_moe_experts " + number(count) + ", got " + number(topk));
  expect(is_softmax || !experts.moe_router_pre_softmax, "moe_router_pre_softmax",
         "moe_router_score_function = \"softmax\" as well, got \"sigmoid\"");
  expect(
      topk > 1 || !is_softmax || experts.moe_router_pre_softmax, "moe_router_topk",
      "2 or more, or moe_router_pre_softmax = true, got 1: of one chosen logit the softmax is always 1, and the router "
      "has no gradient");
  if (freq.size() == 1)
    expect(freq[0] >= 1, "moe_layer_freq", "1 or more, got 0");
  else
    expect(std::ssize(freq) == model.num_layers &&
               std::all_of(freq.begin(), freq.end(), [](std::int64_t one) { return one == 0 || one == 1; }),
           "moe_layer_freq",
           "a number, or 0 or 1 for each of the num_layers " + number(model.num_layers) + " layers, got " +
               number(std::ssize(freq)) + " numbers");
  expect((groups > 0) == (used > 0), groups > 0 ? "moe_router_num_groups" : "moe_router_group_topk",
         groups > 0 ? "moe_router_group_topk as well" : "moe_router_num_groups as well");
  if (groups > 0) {
    expect(count % groups == 0, "moe_router_num_groups",
           "a divisor of num_moe_experts " + number(count) + ", got " + number(groups));
    expect(used <= groups && topk % used == 0, "moe_router_group_topk",
           "a divisor of moe_router_topk " + number(topk) + " and at most moe_router_num_groups " + number(groups) +
               ", got " + number(used));
    expect(topk / used <= count / groups && topk <= used * (count / groups), "moe_router_group_topk",
           "groups with moe_router_topk " + number(topk) + " experts together, got " + number(used) + " of " +
               number(count / groups) + " experts each");
  }
  expect(!experts.moe_shared_expert_gate || experts.has_shared(), "moe_shared_expert_gate",
         "moe_shared_expert_intermediate_size as well");
  expect(!model.add_bias_linear, "num_moe_experts",
         "add_bias_linear = false as well: biases of experts and of the router are not modelled yet");
  expect(!experts.moe_router_enable_expert_bias || !is_softmax, "moe_router_enable_expert_bias",
         "moe_router_score_function = \"sigmoid\" as well, got \"softmax\"");
}

// Fits the list of a preset's layers to another number of layers. A list of one would be a number: of layers with 1 all
// are in it, which {1} says too.
void resize_pattern(TomlTable& table, const char* key, std::vector<std::int64_t>& pattern, std::int64_t layers) {
  if (pattern.size() < 2 || table.has(key)) return;
  pattern.resize(static_cast<std::size_t>(layers), pattern.back());
  if (layers == 1 && pattern[0] == 0) pattern = {2};
}

// A pattern of layers is a number, or 0 or 1 for each layer.
void check_pattern(TomlTable& table, const char* key, const std::vector<std::int64_t>& pattern, std::int64_t layers) {
  if (pattern.size() < 2) {
    if (pattern.size() == 1 && pattern[0] < 1) throw table.failure(key, "expected 1 or more, got 0");
    return;
  }
  if (std::ssize(pattern) != layers ||
      std::any_of(pattern.begin(), pattern.end(), [](std::int64_t one) { return one != 0 && one != 1; }))
    throw table.failure(key, "expected a number, or 0 or 1 for each of the num_layers " + number(layers) +
                                 " layers, got " + number(std::ssize(pattern)) + " numbers");
}

// Checks the kinds of attention against other keys, and refuses what is not modelled.
void check_attention(TomlTable& table, const Transformer& model, const Parallel& parallel) {
  const auto expect = [&](bool holds, const char* key, const std::string& expected) {
    if (!holds) throw table.failure(key, "expected " + expected);
  };
  check_pattern(table, "window_attn_skip_freq", model.window_attn_skip_freq, model.num_layers);
  check_pattern(table, "no_rope_freq", model.no_rope_freq, model.num_layers);
  expect(model.window_attn_skip_freq.empty() || model.limits_keys(), "window_attn_skip_freq",
         "sliding_window or attention_chunk_size as well");
  expect(model.sliding_window == 0 || model.attention_chunk_size == 0, "attention_chunk_size",
         "it or sliding_window, got both");
  expect(model.no_rope_freq.empty() || model.position_embedding_type == PositionEmbedding::rope, "no_rope_freq",
         "position_embedding_type = \"rope\" as well");
  const std::pair<const char*, bool> of_attention[] = {{"sliding_window", model.sliding_window > 0},
                                                       {"attention_chunk_size", model.attention_chunk_size > 0},
                                                       {"no_rope_freq", !model.no_rope_freq.empty()},
                                                       {"softmax_type", model.softmax_type != SoftmaxType::vanilla},
                                                       {"attn_logit_softcapping", model.attn_logit_softcapping > 0},
                                                       {"add_qkv_bias", model.add_qkv_bias},
                                                       {"qk_layernorm_full_width", model.qk_layernorm_full_width}};
  for (const auto& [key, is_on] : of_attention)
    expect(!is_on || !model.latent.any(), key, "it off with multi_latent_attention, whose layers do not have it here");
  expect(!model.qk_layernorm_full_width || model.qk_layernorm, "qk_layernorm_full_width",
         "qk_layernorm = true as well");
  expect(!model.qk_layernorm_full_width || parallel.tensor_model_parallel_size == 1, "qk_layernorm_full_width",
         "tensor_model_parallel_size 1 as well: sums of such norms over ranks are not modelled yet");
  expect(model.norms_inputs() || !model.experts.any(), "norm_places",
         "\"pre\" or \"both\" with num_moe_experts: experts without a norm of their input are not modelled");
  expect(!model.norms_results() || !model.add_bias_linear, "norm_places",
         "add_bias_linear = false as well: a bias before the norm of a sublayer's result is not modelled");
}

}  // namespace

Transformer read_model(TomlTable table, const Parallel& parallel, const std::filesystem::path& folder) {
  Scenario scenario;
  Transformer& model = scenario.model;
  std::string hf_file;
  const bool has_preset = table.has("preset");
  if (has_preset) model = preset(choice_or(table, "preset", "", preset_names()));
  if (const auto given = table.find<std::string>("hf_config")) {
    if (has_preset) throw table.failure("hf_config", "expected it or a preset, got both");
    hf_file = (folder / *given).lexically_normal().string();
    const HfConfig config = read_hf_config(hf_file);
    model = config.model;
  }
  const bool from_preset = has_preset || !hf_file.empty();
  KeyReader keys(table, "model", scenario);
  for (const char* size : {"num_layers", "hidden_size", "num_attention_heads", "seq_length", "vocab_size"})
    keys.read(size, !from_preset);
  if (table.has("hidden_size") || table.has("num_attention_heads")) model.kv_channels = 0;
  keys.read("kv_channels");
  if (!from_preset || table.has("hidden_size")) model.ffn_hidden_size = 4 * model.hidden_size;
  keys.read("ffn_hidden_size");
  if (!from_preset) model.max_position_embeddings = model.seq_length;
  keys.read("max_position_embeddings");
  // As in Megatron-LM, each tensor-parallel rank gets a multiple of this number.
  const std::int64_t multiple =
      value_or<std::int64_t>(table, "make_vocab_size_divisible_by", 1, {.min = 1, .max = kMaxMicroBatch}) *
      parallel.tensor_model_parallel_size;
  model.padded_vocab_size = (model.vocab_size + multiple - 1) / multiple * multiple;
  keys.read("position_embedding_type");
  read_rope_scaling(table, keys, model);
  model.num_query_groups = model.kv_heads();
  keys.read_others();
  // Keys may give a preset fewer or more layers or heads than its model has.
  if (std::vector<std::int64_t>& freq = model.experts.moe_layer_freq; freq.size() > 1 && !table.has("moe_layer_freq"))
    freq.resize(static_cast<std::size_t>(model.num_layers), freq.back());
  resize_pattern(table, "no_rope_freq", model.no_rope_freq, model.num_layers);
  resize_pattern(table, "window_attn_skip_freq", model.window_attn_skip_freq, model.num_layers);
  if (model.latent.any() && !table.has("num_query_groups")) model.num_query_groups = model.num_attention_heads;
  if (table.has("rotary_base") && model.position_embedding_type != PositionEmbedding::rope)
    throw table.failure("rotary_base", std::string("expected position_embedding_type = \"rope\" as well, got \"") +
                                           name_of(model.position_embedding_type) + "\"");
  table.finish();

  check_experts(table, model);
  // A window that a sequence does not fill is full attention, exactly.
  if (from_preset && !table.has("sliding_window") && model.sliding_window >= model.seq_length) model.sliding_window = 0;
  if (from_preset && !table.has("attention_chunk_size") && model.attention_chunk_size >= model.seq_length)
    model.attention_chunk_size = 0;
  if (!model.limits_keys() && !table.has("window_attn_skip_freq")) model.window_attn_skip_freq.clear();
  check_latent(table, model);
  check_linear(table, model);
  check_attention(table, model, parallel);
  const bool divides = model.hidden_size % model.num_attention_heads == 0;
  if (model.kv_channels == 0 && !divides && !model.latent.any())
    throw table.failure("num_attention_heads", "expected a divisor of hidden_size " + number(model.hidden_size) +
                                                   ", or kv_channels as well, got " +
                                                   number(model.num_attention_heads));
  if (divides && model.kv_channels == model.hidden_size / model.num_attention_heads) model.kv_channels = 0;
  if (model.num_attention_heads % model.kv_heads() != 0)
    throw table.failure("num_query_groups", "expected a divisor of num_attention_heads " +
                                                number(model.num_attention_heads) + ", got " +
                                                number(model.kv_heads()));
  if (model.position_embedding_type == PositionEmbedding::rope && model.head_dim() % 2 != 0)
    throw model.kv_channels > 0
        ? table.failure("kv_channels", "expected an even number for rope, got " + number(model.head_dim()))
        : table.failure("num_attention_heads", "expected an even hidden_size / num_attention_heads for rope, got " +
                                                   number(model.hidden_size) + " / " +
                                                   number(model.num_attention_heads) + " = " +
                                                   number(model.head_dim()));
  if (model.seq_length > model.max_position_embeddings)
    throw table.failure("seq_length", "expected at most max_position_embeddings " +
                                          number(model.max_position_embeddings) + ", got " + number(model.seq_length));
  return model;
}

}  // namespace stretto
