#include "model/scenario/hf_config.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "model/scenario.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

// Files as published for gpt2 and Llama-2-7b, without keys of the tokenizer.
const std::string kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
  "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
  "resid_pdrop": 0.1, "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257 })";
const std::string kLlama = R"({
  "_name_or_path": "x", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true, "vocab_size": 32000 })";

const std::string kLlama31 =
    R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"})";

// Adds one key, or replaces its value, on a line of its own.
std::string with(std::string text, const std::string& key, const std::string& value) {
  const std::size_t at = text.find("\"" + key + "\"");
  if (at != std::string::npos) text.replace(at + 1, key.size(), "_");
  return "{\n\"" + key + "\": " + value + "," + text.substr(1);
}
std::string refused_config(const std::string& text) {
  return testing::message_of([&] { parse_hf_config(text, "config.json"); });
}
bool same(const Transformer& a, const Transformer& b) { return write_hf_config(a) == write_hf_config(b); }

}  // namespace

TEST_CASE("published configs are the presets", "[hf_config]") {
  Transformer gpt2 = preset("gpt2-124m");
  gpt2.hidden_dropout = gpt2.attention_dropout = 0.1;
  CHECK(same(parse_hf_config(kGpt2, "c").model, gpt2));
  CHECK(parse_hf_config(kGpt2, "c").model.seq_length == 1024);
  CHECK(parse_hf_config(kGpt2, "c").model.sliding_window == 0);
  CHECK(same(parse_hf_config(kLlama, "c").model, preset("llama2-7b")));
  CHECK(parameter_count(parse_hf_config(kLlama, "c").model) == parameter_count(preset("llama2-7b")));
}

TEST_CASE("Qwen3 has heads of their own width and norms of q and k", "[hf_config]") {
  const std::string qwen = write_hf_config(preset("qwen3-0.6b"));
  const Transformer model = parse_hf_config(qwen, "c").model;
  CHECK(model.head_dim() == 128);
  CHECK(model.attention_size() == 2048);
  CHECK(model.qk_layernorm);
  CHECK(parameter_count(model) == 596'049'920);
  CHECK(parse_hf_config(with(qwen, "head_dim", "null"), "c").model.head_dim() == 128);
  CHECK(parse_hf_config(with(qwen, "sliding_window", "null"), "c").model.sliding_window == 0);
  CHECK_THAT(refused_config(with(qwen, "use_sliding_window", "true")), Contains("use_sliding_window"));
  CHECK_THAT(refused_config(with(qwen, "attention_bias", "true")), Contains("attention_bias"));
}

// As published for Mixtral-8x7B-v0.1.
const std::string kMixtral = R"({
  "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
  "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32000 })";

TEST_CASE("Mixtral's and Qwen3's experts", "[hf_config]") {
  CHECK(same(parse_hf_config(kMixtral, "c").model, preset("mixtral-8x7b")));
  CHECK(parse_hf_config(kMixtral, "c").model.experts == preset("mixtral-8x7b").experts);
  const std::string qwen = write_hf_config(preset("qwen3-30b-a3b"));
  CHECK(parse_hf_config(qwen, "c").model.experts == preset("qwen3-30b-a3b").experts);
  Transformer some = preset("qwen3-30b-a3b");
  some.num_layers = 4;
  some.experts.moe_layer_freq = {0, 1, 0, 1};
  CHECK(parse_hf_config(write_hf_config(some), "c").model.experts == some.experts);
  CHECK(parse_hf_config(with(write_hf_config(some), "mlp_only_layers", "[0], \"decoder_sparse_step\": 2"), "c")
            .model.experts.moe_layer_freq == std::vector<std::int64_t>{0, 1, 0, 1});
  for (const auto& [key, value] :
       {std::pair{"num_local_experts", "0"}, {"num_experts_per_tok", "9"}, {"output_router_logits", "true"}})
    CHECK_THAT(refused_config(with(kMixtral, key, value)), Contains(key));
  CHECK(parse_hf_config(with(qwen, "norm_topk_prob", "false"), "c").model.experts.moe_router_pre_softmax);
}

// As published for DeepSeek-V3-Base, without the keys that say how its weights are quantized.
const std::string kDeepseekV3 = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001, "bos_token_id": 0,
  "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
  "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
  "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
  "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
  "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280 })";
// DeepSeek-V2-Lite and Moonlight-16B-A3B have these besides.
const std::string kDeepseekV2Lite = R"({
  "attention_bias": false, "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_act": "silu",
  "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
  "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
  "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000,
  "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true, "topk_group": 1,
  "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400 })";
const std::string kMoonlight = R"({
  "attention_bias": false, "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 11264,
  "kv_lora_rank": 512, "max_position_embeddings": 8192, "model_type": "deepseek_v3", "moe_intermediate_size": 1408,
  "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": true,
  "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
  "num_nextn_predict_layers": 0, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 50000.0, "routed_scaling_factor": 2.446,
  "scoring_func": "sigmoid", "topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 163840 })";

TEST_CASE("DeepSeek's and Moonlight's latent vectors and experts", "[hf_config]") {
  for (const auto& [text, name] : {std::pair{kDeepseekV3, "deepseek-v3"},
                                   {kDeepseekV2Lite, "deepseek-v2-lite"},
                                   {kMoonlight, "moonlight-16b-a3b"}}) {
    INFO(name);
    Transformer published = preset(name);
    const Transformer model = parse_hf_config(text, "c").model;
    if (text == kDeepseekV3) {
      CHECK(model.num_nextn_predict_layers == 1);
      published.latent.yarn = {40, 32, 1, 1, 1, 4096};
    }
    CHECK(same(model, published));
    CHECK(model.latent == published.latent);
    CHECK(model.experts == published.experts);
  }
  CHECK(parse_hf_config(kDeepseekV3, "c").model.latent.yarn.of_scores() == Approx(1.8738542));
  CHECK(parse_hf_config(with(kDeepseekV2Lite, "norm_topk_prob", "true"), "c").model.experts.moe_router_pre_softmax ==
        false);
  CHECK(parse_hf_config(with(kMoonlight, "first_k_dense_replace", "0"), "c").model.experts.moe_layer_freq ==
        std::vector<std::int64_t>{1});
  for (const auto& [key, value] : {std::pair{"topk_method", "\"group_limited_greedy\""},
                                   {"scoring_func", "\"softmax\""},
                                   {"norm_topk_prob", "false"},
                                   {"topk_group", "3"},
                                   {"num_key_value_heads", "64"},
                                   {"rope_interleave", "false"},
                                   {"num_experts_per_tok", "257"}})
    CHECK_THAT(refused_config(with(kDeepseekV3, key, value)), Contains("config.json:") && Contains("expected"));
}

TEST_CASE("every preset that Hugging Face has comes back from its config", "[hf_config]") {
  for (const std::string& name : preset_names()) {
    INFO(name);
    Transformer model = preset(name);
    if (model.has_score_rules()) {  // none is written of it
      CHECK_THROWS_AS(write_hf_config(model), Error);
      continue;
    }
    for (const bool is_other : {false, true}) {
      model.untie_embeddings_and_output_weights ^= is_other;
      if (model.swiglu) model.add_bias_linear = is_other && !model.qk_layernorm && !model.experts.any();
      const Transformer back = parse_hf_config(write_hf_config(model), "c").model;
      CHECK(same(back, model));
      CHECK(parameter_count(back) == parameter_count(model));
      CHECK(back.kv_heads() == model.kv_heads());
      CHECK(back.rotary_base == model.rotary_base);
      CHECK(back.rope_scaling == model.rope_scaling);
      CHECK(back.latent == model.latent);
      CHECK(back.norm_epsilon == model.norm_epsilon);
      if (model.latent.any())
        model.latent.yarn = {is_other ? 4.0 : 40.0, 16, 2, 0.7, 0.5, 100};
      else if (model.swiglu)
        model.rope_scaling = is_other ? RopeScaling{2.5} : RopeScaling{1, 32, 1.5, 3, 4096};
    }
  }
  Transformer mixture = preset("llama3-8b");
  mixture.swiglu = false;
  CHECK_THROWS_WITH(write_hf_config(mixture), Contains("a mixture"));
}

TEST_CASE("absent keys have the defaults of their classes", "[hf_config]") {
  CHECK(parse_hf_config(with(kLlama, "rope_theta", "5e5"), "c").model.rotary_base == 5e5);
  CHECK(parse_hf_config(with(kLlama, "rope_parameters", R"({"rope_theta": 20000, "rope_type": "default"})"), "c")
            .model.rotary_base == 20000);
  CHECK(parse_hf_config(with(kLlama, "rope_scaling", R"({"type": "linear", "factor": 2.5})"), "c").model.rope_scaling ==
        RopeScaling{2.5});
  CHECK(parse_hf_config(with(kLlama, "rope_scaling", kLlama31), "c").model.rope_scaling ==
        RopeScaling{1, 8, 1, 4, 8192});
  CHECK(parse_hf_config(with(kLlama, "rms_norm_eps", "null"), "c").model.norm_epsilon == 1e-6);
  CHECK(parse_hf_config(with(kGpt2, "layer_norm_epsilon", "null"), "c").model.norm_epsilon == 1e-5);
  CHECK(parse_hf_config(with(kLlama, "num_key_value_heads", "null"), "c").model.num_query_groups == 32);
  CHECK_FALSE(
      parse_hf_config(with(kLlama, "tie_word_embeddings", "true"), "c").model.untie_embeddings_and_output_weights);
  CHECK(parse_hf_config(with(kGpt2, "n_inner", "null"), "c").model.ffn_hidden_size == 3072);
  CHECK(parse_hf_config(with(kGpt2, "n_inner", "100"), "c").model.ffn_hidden_size == 100);
  const std::string mistral = with(kLlama, "model_type", "\"mistral\"");
  CHECK(parse_hf_config(mistral, "c").model.sliding_window == 4096);
  CHECK(parse_hf_config(with(mistral, "sliding_window", "null"), "c").model.sliding_window == 0);
}

TEST_CASE("what Stretto's model has not names the file and the key", "[hf_config]") {
  const auto refuses_scaling = [](const std::string& scaling, const std::string& key) {
    INFO(scaling);
    CHECK_THAT(refused_config(with(kLlama, "rope_scaling", scaling)), Contains("[rope_scaling] " + key + ": "));
  };
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    for (const char* value : {"null", "0", "\"8\"", "-1"}) refuses_scaling(with(kLlama31, key, value), key);
  refuses_scaling(with(kLlama31, "low_freq_factor", "4.0"), "high_freq_factor");
  refuses_scaling(R"({"type": "linear", "factor": 2.5, "low_freq_factor": 1})", "low_freq_factor");
  const auto refuses = [](const std::string& base, const std::string& key, const std::string& value,
                          const std::string& says = "expected") {
    INFO(key << " " << value);
    CHECK_THAT(refused_config(with(base, key, value)),
               Contains("config.json:2: ") && Contains(key + ": ") && Contains(says));
  };
  refuses(kLlama, "model_type", "\"minstral\"", "did you mean \"minist");
  refuses(kLlama, "model_type", "\"deepseek_v4\"",
          "sparse attention with an indexer, several residual streams and attention sinks");
  refuses(kLlama, "model_type", "\"qwen3_next\"", "a gate on attention's output");
  CHECK_THAT(refused_config(with(kLlama, "model_type", "\"qwen2_moe\"")), Contains("num_experts: expected"));
  CHECK_THAT(refused_config(with(with(kLlama, "model_type", "\"jamba\""), "moe_intermediate_size", "Infinity")),
             Contains("\"jamba\" needs what is not modelled yet: Mamba layers"));
  const std::string hybrid = with(with(with(kLlama, "model_type", "\"nemotron_h\""), "num_hidden_layers", "4"),
                                  "hybrid_override_pattern", "\"M-*M\"");
  const Transformer read = parse_hf_config(hybrid, "c").model;
  CHECK(read.layer(0).mixer == MixerKind::mamba);
  CHECK(read.layer(1).mixer == MixerKind::none);
  CHECK(read.mamba.mamba_num_heads == 128);
  CHECK_FALSE(read.swiglu);
  refuses(hybrid, "hybrid_override_pattern", "\"MM\"", "a letter for each");
  CHECK_THAT(refused_config(with(hybrid, "moe_latent_size", "64")), Contains("experts of another width"));
  refuses(kLlama, "model_type", "7");
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok"})
    refuses(kLlama, key, "8", "experts is not modelled yet");
  refuses(kLlama, "qk_rope_head_dim", "64", "multi-latent attention of this family is not modelled yet");
  refuses(kLlama, "attention_bias", "1");
  refuses(kLlama, "mlp_bias", "true", "expected false");
  refuses(kLlama, "hidden_act", "\"gelu\"");
  refuses(kLlama, "rms_norm_eps", "0", "above 0");
  refuses(kLlama, "head_dim", "65", "an even number");
  refuses(kLlama, "num_key_value_heads", "5", "a divisor");
  refuses(kLlama, "num_attention_heads", "0");
  refuses(kLlama, "hidden_size", "-1");
  refuses(kLlama, "hidden_size", "18446744073709551615");
  refuses(kLlama, "hidden_size", "4096.5");
  refuses(kLlama, "hidden_size", "[1]");
  refuses(kLlama, "vocab_sizes", "7", "did you mean \"vocab_size\"");
  refuses(kLlama, "rope_scaling", "7", "a table");
  refuses(kGpt2, "n_head", "5", "a divisor");
  refuses(kGpt2, "activation_function", "\"gelu\"", "gelu_new");
  refuses(kGpt2, "layer_norm_epsilon", "-1e-6", "above 0");
  refuses(kGpt2, "embd_pdrop", "0.2", "resid_pdrop");
  refuses(kGpt2, "attn_pdrop", "1", "below 1");
  refuses(kGpt2, "scale_attn_weights", "false", "true");
  refuses(kGpt2, "add_cross_attention", "true", "false");
  CHECK_THAT(refused_config(with(kLlama, "model_type", "null")), Contains("model_type: "));
  for (const char* text : {"", "{", "[]", "7", "{\"a\": 1e999}", "{\"a\": \"\xff\"}", "{}"}) {
    INFO(text);
    const std::string message = refused_config(text);
    CHECK_THAT(message, Contains("config.json"));
    CHECK(message.find('\n') == std::string::npos);
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  CHECK_THAT(refused_config(deep + "1" + std::string(100'000, '}')), Contains("config.json:1: expected values inside"));
}

TEST_CASE("a family is a row of switches, and what takes no time is left out with a note", "[hf_config]") {
  const auto taken = [](const std::string& text) { return parse_hf_config(text, "config.json").model; };
  const auto typed = [](const std::string& type) { return with(kLlama, "model_type", "\"" + type + "\""); };
  CHECK(taken(kLlama).left_out.empty());
  CHECK(taken(with(kLlama, "is_llama_config", "true")).left_out.empty());
  const std::pair<std::string, const char*> notes[] = {
      {typed("gemma2"), "the gate is GELU and not SiLU"},
      {with(kLlama, "quantization_config", R"({"quant_method": "fp8"})"), "quantization_config is left out"},
      {with(kLlama, "of_the_hub", "7"), "keys of config.json that are not known here are left out: of_the_hub"},
      {with(kLlama, "rope_scaling", R"({"rope_type": "yarn", "factor": 8.0})"), "rope's scaling (yarn) is left out"},
      {with(kLlama, "attention_bias", "true"), "biases of attention's products alone are left out"},
      {with(typed("mimo"), "num_nextn_predict_layers", "1"), "layers of multi-token prediction are left out"},
      {typed("granite"), "scalars of the embedding"},
      {typed("gemma"), "the gate is GELU and not SiLU"},
      {with(typed("seed_oss"), "attention_out_bias", "true"), "biases of attention's products alone are left out"},
  };
  for (const auto& [text, note] : notes) {
    INFO(note);
    const Transformer model = taken(text);
    REQUIRE_FALSE(model.left_out.empty());
    CHECK_THAT(model.left_out.front(), Contains(note));
    CHECK(model.num_layers == 32);
  }
  CHECK(same(taken(with(kDeepseekV3, "model_type", "\"kimi_k2\"")), taken(kDeepseekV3)));
  const Transformer nemotron = taken(with(typed("nemotron"), "hidden_act", "\"relu2\""));
  CHECK(nemotron.normalization == Normalization::layer_norm);
  CHECK_FALSE(nemotron.swiglu);
  CHECK_FALSE(nemotron.add_bias_linear);
  const Transformer starcoder = taken(typed("starcoder2"));
  CHECK(starcoder.add_bias_linear);
  // Sizes of a language model with towers stand in a section.
  const Transformer inner = taken(R"({"model_type": "mistral3", "vision_config": {"a": 1}, "text_config": )" +
                                  with(kLlama, "model_type", "\"ministral3\"") + "}");
  CHECK(inner.hidden_size == 4096);
  CHECK_THAT(inner.left_out.front(), Contains("towers"));
  // Which layers have windows or no rotary positions.
  using Pattern = std::vector<std::int64_t>;
  const auto of_four = [&](const std::string& type) { return with(typed(type), "num_hidden_layers", "4"); };
  const Transformer exaone =
      taken(with(with(of_four("exaone4"), "layer_types",
                      R"(["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])"),
                 "sliding_window", "4096"));
  CHECK(exaone.sliding_window == 4096);
  CHECK(exaone.window_attn_skip_freq == Pattern{1, 1, 1, 0});
  CHECK(exaone.norm_places == NormPlaces::post);
  CHECK(exaone.layer(2).in_window);
  CHECK_FALSE(exaone.layer(3).in_window);
  const Transformer gemma = taken(with(of_four("gemma2"), "attn_logit_softcapping", "50.0"));
  CHECK(gemma.window_attn_skip_freq == Pattern{1, 0, 1, 0});
  CHECK(gemma.attn_logit_softcapping == 50);
  CHECK(gemma.norm_places == NormPlaces::both);
  CHECK(taken(of_four("smollm3")).no_rope_freq == Pattern{0, 0, 0, 1});
  CHECK(taken(with(of_four("smollm3"), "no_rope_layers", "[1, 0, 1, 1]")).no_rope_freq == Pattern{0, 1, 0, 0});
  CHECK(taken(typed("qwen2")).add_qkv_bias);
  CHECK(taken(typed("qwen2")).left_out.empty());
  CHECK_FALSE(taken(typed("glm4")).add_qkv_bias);
  CHECK(taken(with(typed("glm4"), "attention_bias", "true")).add_qkv_bias);
  CHECK(taken(typed("olmo2")).qk_layernorm_full_width);
  const Transformer oss = taken(with(of_four("gpt_oss"), "num_local_experts", "32, \"num_experts_per_tok\": 4"));
  CHECK(oss.softmax_type == SoftmaxType::learnable);
  CHECK(oss.sliding_window == 128);
  CHECK(oss.experts.moe_router_topk == 4);
  const Transformer scout =
      taken(with(with(of_four("llama4_text"), "num_local_experts", "16, \"num_experts_per_tok\": 1"),
                 "intermediate_size_mlp", "16384"));
  CHECK(scout.attention_chunk_size == 8192);
  CHECK(scout.window_attn_skip_freq == Pattern{1, 1, 1, 0});
  CHECK(scout.no_rope_freq == Pattern{0, 0, 0, 1});
  CHECK(scout.ffn_hidden_size == 16384);
  const std::string granite =
      with(with(of_four("granitemoehybrid"), "layer_types", R"(["mamba", "mamba", "attention", "mamba"])"),
           "mamba_n_heads", "8, \"mamba_d_head\": 16, \"mamba_d_state\": 16, \"mamba_n_groups\": 1");
  const Transformer experts = taken(with(granite, "num_local_experts", "4, \"num_experts_per_tok\": 2"));
  CHECK(experts.mamba.hybrid_layer_pattern == "MEME*EME");
  CHECK(experts.num_layers == 8);
  CHECK_FALSE(experts.layer(4).has_rope);
  const Transformer dense = taken(with(granite, "shared_intermediate_size", "64"));
  CHECK(dense.mamba.hybrid_layer_pattern == "M-M-*-M-");
  CHECK(dense.ffn_hidden_size == 64);
  CHECK_THAT(refused_config(with(kLlama, "layer_types", R"(["full_attention", "linear_attention"])")),
             Contains("layers of other kinds (linear_attention)"));
  CHECK_THAT(refused_config(with(kLlama, "attn_logit_softcapping", "50.0")), Contains("soft caps"));
}

TEST_CASE("a scenario takes its model from a config.json beside it", "[hf_config]") {
  const testing::TempDir folder;
  folder.write("config.json", kLlama);
  const std::string file =
      folder.write("s.toml", "[model]\nhf_config = \"config.json\"\nseq_length = 2048\nnum_layers = 3\n");
  const Scenario s = read_scenario(file);
  CHECK(s.model.num_layers == 3);
  CHECK(s.model.seq_length == 2048);
  CHECK(s.model.max_position_embeddings == 4096);
  CHECK(s.model.ffn_hidden_size == 11008);
  CHECK(s.model.swiglu);
  const auto refused = [&](const std::string& set) { return testing::message_of([&] { read_scenario(file, {set}); }); };
  CHECK_THAT(refused("model.preset=gpt2-124m"), Contains("hf_config: expected it or a preset, got both"));
  CHECK_THAT(refused("model.hf_config=none.json"), Contains("none.json") && Contains("No such file"));
  folder.write("mistral.json", with(with(kLlama, "model_type", "\"mistral\""), "sliding_window", "2047"));
  CHECK(read_scenario(file, {"model.hf_config=mistral.json"}).model.sliding_window == 2047);
  CHECK(read_scenario(file, {"model.hf_config=mistral.json", "model.seq_length=2047"}).model.sliding_window == 0);
}
