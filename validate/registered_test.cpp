#include "validate/registered.hpp"

#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "habits/recipes.hpp"
#include "interchange/perf_recipes.hpp"
#include "tests/message_of.hpp"

namespace stretto::validate {
namespace {

RegisteredStep registered(const char* recipe, std::int64_t gpus, double predicted_s) {
  RegisteredStep step;
  step.recipe = recipe;
  step.platform = "gb300-nvl72", step.precision = "fp8mx", step.task = "pretrain", step.scenario = "0123456789abcdef";
  step.gpus = gpus, step.layers = 2, step.hidden = 256, step.seq_len = 128, step.gbs = 32;
  step.predicted_s = predicted_s, step.low_s = 0.9 * predicted_s, step.high_s = 1.1 * predicted_s, step.peak_GiB = 5;
  step.version = "1.0", step.date = "2026-11-28";
  return step;
}

PublishedStep measured(const char* id, std::int64_t gpus, const char* precision, double step_s) {
  PublishedStep step;
  step.id = id, step.platform = "gb300-nvl72", step.gpus = gpus, step.precision = precision, step.step_s = step_s;
  step.scenario_text =
      "[model]\nnum_layers = 2\nhidden_size = 256\nnum_attention_heads = 4\nseq_length = 128\nvocab_size = 512\n"
      "[parallel]\ndata_parallel_size = 8\n[training]\nglobal_batch_size = 32\n";
  return step;
}

}  // namespace

TEST_CASE("registered predictions are read as they were written", "[validate]") {
  const std::vector<RegisteredStep> steps = {registered("a", 8, 1.25), registered("b", 16, 2.5)};
  const std::string text = text_of(steps);
  CHECK(text_of(read_registered(text, "r.csv")) == text);
  CHECK(text.find("\na,gb300-nvl72,8,fp8mx,pretrain,2,256,128,32,1,1,1,1,0123456789abcdef,1.25,") != std::string::npos);
  std::string wrong = text;
  wrong.replace(wrong.find("1.25"), 4, "soon");
  CHECK(testing::message_of([&] { read_registered(wrong, "r.csv"); }).find("r.csv:2: predicted_s: expected") == 0);
}

TEST_CASE("a measured step is scored by the prediction of its GPUs, precision and layout alone", "[validate]") {
  const std::vector<RegisteredStep> before = {registered("of 16", 16, 9), registered("of 8", 8, 1)};
  PublishedStep skipped = measured("skipped", 8, "fp8_mx", 1);
  skipped.skipped = "for a reason";
  const std::vector<ScoredStep> scored =
      score(before, {measured("inside", 8, "fp8_mx", 0.95), measured("other precision", 8, "fp8_cs", 0.95),
                     measured("outside", 8, "fp8_mx", 2), measured("other GPUs", 32, "fp8_mx", 1), skipped});
  REQUIRE(scored.size() == 2);
  CHECK(scored[0].id == "inside");
  CHECK(scored[0].registered.recipe == "of 8");
  CHECK(scored[0].is_inside());
  CHECK(scored[1].id == "outside");
  CHECK_FALSE(scored[1].is_inside());
  CHECK(scored[1].error() == Approx(-0.5));
}

TEST_CASE("a recipe that ships is a scenario on its GPU's platform", "[validate]") {
  const PerfRecipe& recipe = perf_recipes().front();
  const Scenario scenario =
      parse_scenario(habits::text_of(habits::shipped_recipe(recipe), platform_of_gpu(recipe.key.gpu)), recipe.name);
  CHECK(scenario.platform == data_file("platforms", platform_of_gpu(recipe.key.gpu)));
  CHECK(scenario.parallel.data_parallel_size * scenario.parallel.context_parallel_size *
            scenario.parallel.tensor_model_parallel_size * scenario.parallel.pipeline_model_parallel_size ==
        recipe.gpus);
}

}  // namespace stretto::validate
