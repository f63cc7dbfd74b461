// The gated delta rule, Mamba-2 and hybrids in every layout and mode, and their keys.
#include <catch2/catch.hpp>

#include "exec/data.hpp"
#include "model/training_flops.hpp"
#include "tests/message_of.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing::linear_mixers {
namespace {

// 0: every second layer is linear; 1: layers of one sublayer, with Mamba-2; 2: as 0, with experts; 3: Mamba-2 alone.
Scenario in_linear_layout(const Layout& layout, const std::string& mode, int kind) {
  Scenario scenario = layout_scenario(layout, mode, true, "fp64");
  Transformer& model = scenario.model;
  if (kind % 2 == 1) {
    model.mamba = {"", 3, 2, 6, 12};
    while (std::ssize(model.mamba.hybrid_layer_pattern) < model.num_layers)
      model.mamba.hybrid_layer_pattern += kind == 3 ? 'M' : "M-*"[model.mamba.hybrid_layer_pattern.size() % 3];
    return scenario;
  }
  model.gated_delta = {{2}, 3, 2, 3, 6, 12};
  if (kind == 0 || (layout.tp > 1 && !layout.sequence_parallel)) return scenario;
  model.experts.num_moe_experts = 6;
  model.experts.moe_ffn_hidden_size = 12;
  model.experts.moe_layer_freq = {2};
  return scenario;
}

const Layout kLinearLayouts[] = {
    {1, 1},
    {2, 1},
    {1, 2},
    {1, 2, true},
    {2, 3, true},
    {2, 1, false, 2},
    {1, 2, true, 3},
    {1, 1, false, 2, 3},
    {.pp = 2, .schedule = PipelineSchedule::zb_h1},
    {.tp = 2, .sequence_parallel = true, .pp = 2, .vp = 2, .split = "E|ttt|tt|tL", .schedule = PipelineSchedule::zb_v}};

ScenarioOf of_kind(int kind) {
  return [=](const Layout& layout, const std::string& mode) { return in_linear_layout(layout, mode, kind); };
}
void change(exec::FullTensor& tensor) {
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] += 0.2 * normal(99, stream_of(tensor.name), i);
}

}  // namespace

TEST_CASE("linear attention: every layout and mode equals the single rank", "[serial][linear]") {
  const int kind = GENERATE(0, 1, 2, 3);
  SingleRank single(2, change);
  INFO("kind " << kind);
  check_every_mode(single, kLinearLayouts, of_kind(kind));
  check_what_goes_with(single, of_kind(kind));
}

TEST_CASE("FLOPs of a step with linear attention are those of its products", "[linear]") {
  for (const int kind : {0, 1, 3}) check_flops(in_linear_layout({}, "plain", kind));
}

TEST_CASE("keys of linear attention are checked", "[linear]") {
  const std::string model =
      "[model]\nnum_layers = 4\nhidden_size = 8\nnum_attention_heads = 2\nseq_length = 4\nvocab_size = 9\n"
      "add_bias_linear = false\nposition_embedding_type = \"rope\"\n";
  const auto refusal = [&](const std::string& more, const std::vector<std::string>& sets = {}) {
    return message_of([&] { parse_scenario(model + more, "s", sets); });
  };
  using Catch::Matchers::Contains;
  const Scenario delta = parse_scenario(model + "linear_attention_freq = 4\n", "s");
  CHECK(delta.model.layer(2).mixer == MixerKind::gated_delta);
  CHECK(delta.model.layer(3).mixer == MixerKind::attention);
  const Transformer hybrid = parse_scenario(model + "hybrid_layer_pattern = \"M-*M\"\n", "s").model;
  CHECK(hybrid.layer(0).mixer == MixerKind::mamba);
  CHECK_FALSE(hybrid.layer(0).has_mlp());
  CHECK(hybrid.layer(1).mixer == MixerKind::none);
  CHECK(hybrid.layer(2).mixer == MixerKind::attention);
  CHECK(hybrid.layer_kinds().size() == 3);
  CHECK_THAT(refusal("linear_key_head_dim = 4\n"), Contains("linear_attention_freq as well"));
  CHECK_THAT(refusal("linear_attention_freq = 1\n"), Contains("2 or more"));
  CHECK_THAT(refusal("linear_attention_freq = [0, 1]\n"), Contains("num_layers 4"));
  CHECK_THAT(refusal("linear_attention_freq = 4\nlinear_num_key_heads = 5\n"), Contains("a multiple of"));
  CHECK_THAT(refusal("hybrid_layer_pattern = \"M-*\"\n"), Contains("a letter for each"));
  CHECK_THAT(refusal("hybrid_layer_pattern = \"M-*X\"\n"), Contains("the letters"));
  CHECK_THAT(refusal("hybrid_layer_pattern = \"ME**\"\n"), Contains("num_moe_experts"));
  CHECK_THAT(refusal("linear_attention_freq = 4\n", {"parallel.context_parallel_size=2"}),
             Contains("linear_attention"));
}

}  // namespace stretto::testing::linear_mixers
