#include "predict/fit_memory.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "predict/framework_memory.hpp"
#include "predict/predict_step.hpp"
#include "report/sheet.hpp"
#include "tests/cases.hpp"

using namespace stretto;
using namespace stretto::predict;

namespace {

constexpr const char* kPipeline = R"(platform = "h100-sxm"
profile = "nemo-dgxc"
[model]
num_layers = 16
hidden_size = 2048
num_attention_heads = 16
seq_length = 2048
vocab_size = 32000
[parallel]
data_parallel_size = 4
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 4
virtual_pipeline_model_parallel_size = 2
[training]
micro_batch_size = 4
global_batch_size = 128
)";

Scenario scenario(const std::vector<std::string>& set) { return parse_scenario(kPipeline, "fit", set); }

// A platform that has `share` of the memory that the scenario's framework allocates.
sim::Platform platform_with(double share) {
  sim::Platform platform = sim::read_platform(scenario({}).platform);
  const PredictedStep step = predict_step(scenario({}), platform);
  platform.memory_bytes =
      static_cast<std::int64_t>(double(step.prediction.memory.allocated_bytes()) * share) +
      static_cast<std::int64_t>(double(step.prediction.memory.reserved_bytes()) * (1 + kUnsureMemory));
  return platform;
}

}  // namespace

TEST_CASE("changes that make a step fit are what they say when they are simulated", "[fit]") {
  const sim::Platform platform = platform_with(0.8);
  CHECK_FALSE(predict_step(scenario({}), platform).prediction.memory.fits());
  const FitSearch search = find_fitting(scenario({}), platform, scenario);
  REQUIRE(search.fitting.size() >= 3);
  CHECK(search.complete);
  testing::Cases cases;
  for (std::size_t i = 0; i < search.fitting.size(); ++i) {
    if (!cases.takes_next()) continue;
    const FittingScenario& fit = search.fitting[i];
    INFO(fit.set.front() << ", " << fit.set.size() << " overrides");
    const Scenario changed = scenario(fit.set);
    CHECK(changed.parallel.ranks() == scenario({}).parallel.ranks());
    CHECK(changed.training.global_batch_size == scenario({}).training.global_batch_size);
    const Prediction whole = predict_step(changed, platform).prediction;
    CHECK(whole.memory.fit() == Fit::fits);
    CHECK(fit.step_ms == Approx(whole.step_ms).epsilon(2e-3));
    CHECK(fit.predicted_bytes == whole.memory.predicted_bytes());
    CHECK(fit.free_bytes == whole.memory.free_bytes());
  }
  CHECK(fitting_sheet(search).table().rows() == search.fitting.size());
}

TEST_CASE("where no change alone suffices, several do; where none do, nothing is said to fit", "[fit]") {
  const FitSearch pairs = find_fitting(scenario({}), platform_with(0.3), scenario);
  REQUIRE(!pairs.fitting.empty());
  for (const FittingScenario& fit : pairs.fitting) CHECK(fit.changes.size() >= 2);
  const FitSearch none = find_fitting(scenario({}), platform_with(0.01), scenario);
  CHECK(none.fitting.empty());
  CHECK(none.tried > 8);
}

TEST_CASE("what the scenario's reader refuses is not tried", "[fit]") {
  std::int64_t read = 0;
  const FitSearch search =
      find_fitting(scenario({}), platform_with(0.8), [&](const std::vector<std::string>& set) -> Scenario {
        ++read;
        throw input_error("no " + set.front());
      });
  CHECK(search.fitting.empty());
  CHECK(search.tried == 0);
  CHECK(read > 8);
}

TEST_CASE("unfused attention keeps its probabilities", "[fit]") {
  const sim::Platform platform = sim::read_platform(scenario({}).platform);
  const auto activations = [&](const std::string& backend, const std::string& recompute, double dropout = 0.1) {
    const Scenario changed =
        scenario({"training.recompute_granularity=" + recompute, "training.attention_backend=" + backend,
                  "model.attention_dropout=" + std::to_string(dropout)});
    std::vector<std::int64_t> bytes;
    const PredictedStep step = predict_step(changed, platform);
    for (const MemoryUse& use : memory_use(step.schedule, step.plan)) bytes.push_back(use.activations);
    return bytes;
  };
  // A layer and micro-batch of 4 sequences, 8 heads a rank, keeps the probabilities, dropout's mask and result, without
  // the logarithms of sums that fused attention keeps.
  const std::int64_t rows = std::int64_t{4} * 8 * 2048, layer = rows * (5 * 2048 - 4);
  const std::vector<std::int64_t> fused = activations("fused", "none"), unfused = activations("unfused", "none");
  REQUIRE(fused.size() == 4);
  // Interleaved with two chunks of two layers: the first stage has 11 live units, in six slots for each chunk.
  CHECK(unfused[0] - fused[0] == 2 * 2 * 6 * layer);
  CHECK(unfused[3] < unfused[0]);
  // With recomputation only one layer at a time keeps them.
  CHECK(activations("unfused", "selective")[0] - activations("fused", "selective")[0] == layer);
  CHECK(activations("unfused", "none", 0)[0] - activations("fused", "none", 0)[0] == 2 * 2 * 6 * rows * (2 * 2048 - 4));
}
