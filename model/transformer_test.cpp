#include "model/transformer.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "base/error.hpp"
#include "model/training_flops.hpp"

using namespace stretto;

TEST_CASE("presets have their published parameter counts", "[transformer]") {
  CHECK(parameter_count(preset("gpt2-124m")) == 124'439'808);
  CHECK(parameter_count(preset("gpt2-355m")) == 354'823'168);
  CHECK(parameter_count(preset("gpt2-774m")) == 774'030'080);
  CHECK(parameter_count(preset("gpt2-1558m")) == 1'557'611'200);
  // arXiv 2005.14165, table D.1 gives 174,600 million.
  CHECK(parameter_count(preset("gpt3-175b")) == 174'604'259'328);
  // The numbers come from the released checkpoints. Touvron et al., arXiv 2307.09288, table 1: 7B; arXiv 2407.21783,
  // table 3: 8B, 70B, 405B.
  CHECK(parameter_count(preset("llama2-7b")) == 6'738'415'616);
  CHECK(parameter_count(preset("llama3-8b")) == 8'030'261'248);
  CHECK(parameter_count(preset("qwen3-0.6b")) == 596'049'920);
  CHECK(parameter_count(preset("qwen3-8b")) == 8'190'735'360);
  CHECK(parameter_count(preset("llama3-70b")) == 70'553'706'496);
  CHECK(parameter_count(preset("llama3-405b")) == 405'853'388'800);
  // Mixtral of Experts and the models' cards give 46.7, 140.6, 30.5 and 235 billion; a token meets 12.9, 39.1,
  // 3.3 and 22.
  CHECK(parameter_count(preset("mixtral-8x7b")) == 46'702'792'704);
  CHECK(active_parameter_count(preset("mixtral-8x7b")) == 12'879'925'248);
  CHECK(parameter_count(preset("mixtral-8x22b")) == 140'620'634'112);
  CHECK(active_parameter_count(preset("mixtral-8x22b")) == 39'152'031'744);
  CHECK(parameter_count(preset("qwen3-30b-a3b")) == 30'532'122'624);
  CHECK(active_parameter_count(preset("qwen3-30b-a3b")) == 3'353'032'704);
  CHECK(parameter_count(preset("qwen3-235b-a22b")) == 235'093'634'560);
  CHECK(active_parameter_count(preset("qwen3-235b-a22b")) == 22'190'763'520);
  // DeepSeek-V2-Lite: 15.7 billion; a token meets 2.4 without the embedding's 0.2. DeepSeek-V3: 671 and 37, of
  // checkpoints without multi-token prediction 671,026,419,200 with 58 · 256 biases of experts. Moonlight: 16, and 2.24
  // without embedding and head.
  CHECK(parameter_count(preset("deepseek-v2-lite")) == 15'706'484'224);
  CHECK(active_parameter_count(preset("deepseek-v2-lite")) == 2'661'150'208);
  CHECK(parameter_count(preset("deepseek-v3")) == 671'026'419'200 - 58 * 256);
  CHECK(active_parameter_count(preset("deepseek-v3")) == 37'552'282'624);
  CHECK(parameter_count(preset("moonlight-16b-a3b")) == 15'960'108'544);
  CHECK(active_parameter_count(preset("moonlight-16b-a3b")) == 2'914'774'528);
  std::int64_t of_attention = 0;
  for (const Parameter& p : parameters(preset("deepseek-v3")))
    if (p.layer == 0 && p.decayed && !p.name.starts_with("fc")) of_attention += p.elements();
  CHECK(of_attention == 187'107'328 - 1536 - 512);
  CHECK(active_parameter_count(preset("llama3-8b")) == parameter_count(preset("llama3-8b")));
  CHECK(preset("gpt3-175b").head_dim() == 128);  // table 2.1
  CHECK(preset("llama3-405b").head_dim() == 128);
  CHECK(preset("llama3-8b").kv_heads() == 8);
  CHECK(preset("gpt2-1558m").head_dim() == 64);
}

TEST_CASE("an unknown preset names the nearest one", "[transformer]") {
  CHECK_THROWS_WITH(preset("gpt2-124M"), Catch::Contains("did you mean \"gpt2-124m\"?"));
  CHECK_THROWS_AS(preset(""), Error);
  for (const std::string& name : preset_names()) CHECK_NOTHROW(preset(name));
}

TEST_CASE("the list of parameters adds up to the count", "[transformer]") {
  for (const std::string& name : preset_names()) {
    std::int64_t sum = 0;
    for (const Parameter& p : parameters(preset(name))) sum += p.elements();
    CHECK(sum == parameter_count(preset(name)));
  }
  Transformer padded = preset("gpt2-124m");
  padded.padded_vocab_size = 50304;
  std::int64_t sum = 0;
  for (const Parameter& p : parameters(padded)) sum += p.elements();
  CHECK(sum == parameter_count(padded) + (50304 - 50257) * 768);
}

TEST_CASE("parameters are in registration order, matrices decayed", "[transformer]") {
  Transformer model = preset("gpt2-124m");
  model.num_layers = 2;
  model.ffn_hidden_size = 1000;
  const std::vector<Parameter> all = parameters(model);
  REQUIRE(all.size() == 2 + 2 * 12 + 2);
  CHECK(all[0].full_name() == "wte.weight");
  CHECK(all[1].full_name() == "wpe.weight");
  CHECK(all[2].full_name() == "h.0.ln_1.weight");
  CHECK(all[16].full_name() == "h.1.qkv.weight");
  CHECK(all.back().full_name() == "ln_f.bias");
  CHECK(all[4].rows == 3 * 768);
  CHECK(all[4].cols == 768);
  CHECK(all[12].full_name() == "h.0.fc2.weight");
  CHECK(all[12].rows == 768);
  CHECK(all[12].cols == 1000);
  std::set<std::string> names;
  for (const Parameter& p : all) {
    names.insert(p.full_name());
    CHECK(p.decayed == (p.rows > 1));
  }
  CHECK(names.size() == all.size());
}

TEST_CASE("FLOPs with full attention are Megatron's published formula", "[transformer]") {
  // arXiv 2104.04473, eq. 3: 96·B·s·L·h²·(1 + s/(6h) + V/(16·L·h)) with every layer recomputed. Without recompute the
  // layers run three times their forward instead of four, and the head three times as before:
  // 72·B·s·L·h²·(1 + s/(6h) + V/(12·L·h)).
  for (const std::string& name : preset_names()) {
    const Transformer model = preset(name);
    if (model.swiglu) continue;
    const double s = double(model.seq_length), h = double(model.hidden_size), v = double(model.vocab_size);
    const double layers = double(model.num_layers);
    const double published = 96 * s * layers * h * h * (1 + s / (6 * h) + v / (16 * layers * h));
    const double recomputed = 24 * s * layers * h * h * (1 + s / (6 * h));  // one more forward of the layers
    const Flops flops = training_flops_per_sequence(model);
    CHECK(flops.model_full_attention == Approx(published - recomputed).epsilon(1e-12));
    CHECK(flops.model_full_attention ==
          Approx(72 * s * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h))).epsilon(1e-12));
  }
}

TEST_CASE("Llama's list of parameters", "[transformer]") {
  Transformer model = preset("llama3-8b");
  model.num_layers = 1;
  std::vector<std::string> names;
  for (const Parameter& p : parameters(model)) names.push_back(p.full_name());
  CHECK(names == std::vector<std::string>{"wte.weight", "h.0.ln_1.weight", "h.0.qkv.weight", "h.0.proj.weight",
                                          "h.0.ln_2.weight", "h.0.fc1.weight", "h.0.fc2.weight", "ln_f.weight",
                                          "lm_head.weight"});
}

TEST_CASE("the list of parameters of experts", "[transformer]") {
  Transformer model = preset("mixtral-8x7b");
  model.num_layers = 3;
  model.experts.moe_layer_freq = {2};
  model.experts.moe_shared_expert_intermediate_size = 100;
  model.experts.moe_shared_expert_gate = true;
  std::vector<std::string> names;
  for (const Parameter& p : parameters(model))
    if (p.layer >= 0 && p.layer < 2) names.push_back(p.full_name());
  CHECK(names == std::vector<std::string>{"h.0.ln_1.weight", "h.0.qkv.weight", "h.0.proj.weight", "h.0.ln_2.weight",
                                          "h.0.router.weight", "h.0.experts.fc1.weight", "h.0.experts.fc2.weight",
                                          "h.0.shared.fc1.weight", "h.0.shared.fc2.weight", "h.0.shared.gate.weight",
                                          "h.1.ln_1.weight", "h.1.qkv.weight", "h.1.proj.weight", "h.1.ln_2.weight",
                                          "h.1.fc1.weight", "h.1.fc2.weight"});
  model.experts.moe_layer_freq = {0, 1, 0};
  CHECK(model.layer(1).has_experts());
  CHECK(model.layer_kinds().size() == 2);
  CHECK_FALSE(model.layer(2).has_experts());
}

TEST_CASE("what tensor parallelism will cut", "[transformer]") {
  const auto find = [](const Transformer& model, const std::string& name) {
    for (const Parameter& p : parameters(model))
      if (p.name == name) return p;
    FAIL("no parameter " << name);
    return Parameter{};
  };
  using Segments = std::vector<std::int64_t>;
  const Transformer llama = preset("llama3-8b"), gpt = preset("gpt2-124m");
  CHECK(find(llama, "qkv.weight").shard == Shard::rows);
  CHECK(find(llama, "qkv.weight").segments == Segments{4096, 1024, 1024});
  CHECK(find(llama, "fc1.weight").shard == Shard::rows);
  CHECK(find(llama, "fc1.weight").segments == Segments{14336, 14336});
  CHECK(find(llama, "lm_head.weight").shard == Shard::rows);
  CHECK(find(gpt, "qkv.bias").segments == Segments{768, 768, 768});
  CHECK(find(gpt, "fc1.weight").segments.empty());
  for (const char* name : {"wte.weight", "qkv.weight", "qkv.bias", "fc1.weight", "fc1.bias"})
    CHECK(find(gpt, name).shard == Shard::rows);
  for (const char* name : {"proj.weight", "fc2.weight"}) CHECK(find(gpt, name).shard == Shard::columns);
  for (const char* name : {"proj.bias", "fc2.bias", "ln_1.weight", "ln_1.bias", "ln_f.weight"})
    CHECK(find(gpt, name).shard == Shard::none);
  for (const Transformer& model : {llama, gpt})
    for (const Parameter& p : parameters(model)) {
      std::int64_t sum = 0;
      for (const std::int64_t segment : p.segments) sum += segment;
      if (!p.segments.empty()) CHECK(sum == (p.rows > 1 ? p.rows : p.cols));
    }
}

TEST_CASE("FLOPs are 6 per token and per weight that is multiplied with, and attention's", "[transformer]") {
  for (const std::string& name : preset_names()) {
    const Transformer model = preset(name);
    double weights = double(model.vocab_size) * double(model.hidden_size);  // the head, tied or not
    for (const Parameter& p : parameters(model))
      if (p.layer >= 0 && p.decayed)
        weights += double(p.experts > 0 ? p.elements() / p.experts * model.experts.moe_router_topk : p.elements());
    const double s = double(model.seq_length);
    const double attention = 6 * double(model.num_layers) * s * s * double(model.q_size() + model.attention_size());
    CHECK(training_flops_per_sequence(model).model_full_attention ==
          Approx(6 * s * weights + attention).epsilon(1e-12));
  }
}

TEST_CASE("causal attention halves its matmuls, execution rounds up to blocks", "[transformer]") {
  Transformer model = preset("gpt2-124m");
  const Flops flops = training_flops_per_sequence(model);
  const double s = 1024, square = 12 * 2 * s * s * 768;  // one S×S×head_dim product of all heads and layers
  CHECK(flops.model_full_attention - flops.model == Approx(3 * square));
  // 16 blocks of 64 queries, block i against 64·(i + 1) keys: 136 of 256 tiles; seven matmuls, as QKᵀ is formed again.
  CHECK(flops.hardware - (flops.model - 3 * square) == Approx(7 * square * 136 / 256));
  // All other FLOPs are 6 per token and per weight that a GEMM multiplies with.
  const double weights = 12 * 12.0 * 768 * 768 + 50257.0 * 768;
  CHECK(flops.model == Approx(6 * s * weights + 3 * square));

  // A frozen base saves the products for weight gradients, but keeps all of attention.
  CHECK(flops.model - training_flops_per_sequence(model, true).model == Approx(2 * s * weights));
  CHECK(flops.hardware - training_flops_per_sequence(model, true).hardware == Approx(2 * s * weights));

  model.padded_vocab_size = 50304;
  const Flops padded = training_flops_per_sequence(model);
  CHECK(padded.model == flops.model);
  CHECK(padded.hardware - flops.hardware == Approx(6 * s * 768 * 47));
}

TEST_CASE("gpt-oss has the parameters of its card, but for biases, and windows in every second layer",
          "[transformer]") {
  // Biases that are left out: of attention's output, the router and experts.
  const auto left_out = [](std::int64_t layers, std::int64_t experts) {
    return layers * (2880 + experts + experts * 3 * 2880);
  };
  CHECK(parameter_count(preset("gpt-oss-20b")) + left_out(24, 32) == 20'914'757'184);
  CHECK(parameter_count(preset("gpt-oss-120b")) + left_out(36, 128) == 116'829'156'672);
  const Transformer model = preset("gpt-oss-20b");
  CHECK(model.layer(0).in_window);
  CHECK_FALSE(model.layer(1).in_window);
  // 32.6 GFLOP a token at 4,096 tokens, as Megatron-Bridge counts (utils/flop_utils.py, MODEL_TFLOP of its table).
  Transformer large = preset("gpt-oss-120b");
  CHECK(training_flops_per_sequence(large).model / double(large.seq_length) == Approx(32.6e9).epsilon(0.005));
}

TEST_CASE("a pattern of layers is every n-th one, or 0 or 1 for each", "[transformer]") {
  const auto layers_in = [](const std::vector<std::int64_t>& pattern) {
    std::string layers;
    for (std::int64_t layer = 0; layer < 6; ++layer) layers += is_in_pattern(pattern, layer) ? '1' : '0';
    return layers;
  };
  CHECK(layers_in({}) == "000000");
  CHECK(layers_in({0}) == "000000");
  CHECK(layers_in({1}) == "111111");
  CHECK(layers_in({3}) == "001001");
  CHECK(layers_in({1, 0, 0, 1, 0, 1}) == "100101");
  CHECK(layers_in({0, 1}) == "011111");
}
