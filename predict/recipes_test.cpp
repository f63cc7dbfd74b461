#include "predict/recipes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/data_folder.hpp"

namespace stretto::predict {

TEST_CASE("the step in each precision, or why a GPU has none", "[predict]") {
  Scenario scenario = parse_scenario(
      "[model]\nnum_layers = 2\nhidden_size = 2048\nnum_attention_heads = 16\nseq_length = 2048\nvocab_size = 1024\n"
      "[training]\nprecision = \"bf16\"\nmicro_batch_size = 2\nglobal_batch_size = 2\n",
      "scenario");
  const auto of = [&](const std::string& platform) {
    return predict_recipes(scenario, sim::read_platform(data_file("platforms", platform)), {});
  };
  const std::vector<RecipeStep> hopper = of("h100-sxm"), blackwell = of("gb300-nvl72");
  const auto named = [](const std::vector<RecipeStep>& steps, const std::string& recipe) {
    return *std::find_if(steps.begin(), steps.end(), [&](const RecipeStep& step) { return step.recipe == recipe; });
  };
  REQUIRE(hopper.size() == 6);
  CHECK(named(hopper, "bf16").is_scenario);
  for (const char* recipe : {"delayed", "tensorwise", "blockwise"}) {
    INFO(recipe << named(hopper, recipe).why_not);
    CHECK(named(hopper, recipe).why_not.empty());
    CHECK(named(hopper, recipe).peak_bytes > 0);
  }
  // Current scaling reads everything once more than delayed scaling.
  CHECK(named(hopper, "delayed").step_ms < named(hopper, "tensorwise").step_ms);
  CHECK(named(hopper, "mxfp8").why_not.find("10.0") != std::string::npos);
  CHECK(named(hopper, "nvfp4").step_ms == 0);
  for (const char* recipe : {"bf16", "mxfp8", "nvfp4"}) CHECK(named(blackwell, recipe).why_not.empty());
  CHECK(named(blackwell, "nvfp4").step_ms < named(blackwell, "bf16").step_ms);
  // A recipe that a gate refuses has its reason.
  const std::vector<RecipeStep> again = predict_recipes(
      parse_scenario("[model]\nnum_layers = 2\nhidden_size = 1024\nnum_attention_heads = 8\nseq_length = 1024\n"
                     "vocab_size = 1024\nadd_bias_linear = false\nnum_moe_experts = 4\nmoe_router_topk = 2\n"
                     "[training]\nprecision = \"bf16\"\nglobal_batch_size = 1\nrecompute_granularity = \"full\"\n",
                     "scenario"),
      sim::read_platform(data_file("platforms", "h100-sxm")), {});
  CHECK(named(again, "tensorwise").why_not.empty());
  CHECK(named(again, "delayed").why_not.find("expected recompute_granularity none") != std::string::npos);
  // Where ranks share experts their rows may be sent as codes, by one of the dispatchers.
  const auto with_experts = [&](const char* dispatcher) {
    return predict_recipes(
        parse_scenario("platform = \"gb300-nvl72\"\n[model]\nnum_layers = 2\nhidden_size = 2048\n"
                       "num_attention_heads = 16\nseq_length = 4096\n"
                       "vocab_size = 1024\nadd_bias_linear = false\nswiglu = true\nnum_moe_experts = 32\n"
                       "moe_router_topk = 4\nmoe_ffn_hidden_size = 1024\n[parallel]\ndata_parallel_size = 8\n"
                       "expert_model_parallel_size = 8\nmoe_token_dispatcher_type = \"flex\"\n"
                       "moe_flex_dispatcher_backend = \"" +
                           std::string(dispatcher) + "\"\n[training]\nprecision = \"bf16\"\nglobal_batch_size = 8\n",
                       "scenario"),
        sim::read_platform(data_file("platforms", "gb300-nvl72")), {});
  };
  const std::string sends = "mxfp8, rows of experts sent as codes";
  const std::vector<RecipeStep> nccl = with_experts("ncclep");
  CHECK(named(nccl, sends).why_not == "");
  CHECK(named(nccl, sends).step_ms < named(nccl, "mxfp8").step_ms);
  CHECK(named(with_experts("hybridep"), sends).why_not.find("ncclep") != std::string::npos);
  scenario.training.precision = "fp32";
  CHECK(of("h100-sxm").empty());
}

}  // namespace stretto::predict
