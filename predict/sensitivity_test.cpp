#include "predict/sensitivity.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "predict/constants.hpp"
#include "predict/predict_step.hpp"
#include "tests/cases.hpp"

namespace stretto::predict {
namespace {

constexpr const char* kLimitsScenario =
    "platform = \"h100-sxm\"\nprofile = \"nemo-dgxc\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 8\n"
    "[parallel]\ntensor_model_parallel_size = 2\npipeline_model_parallel_size = 2\ndata_parallel_size = 8\n"
    "sequence_parallel = true\n[training]\nglobal_batch_size = 64\n"
    "[overlap]\noverlap_grad_reduce = true\noverlap_param_gather = true\n";

// Returns ln of the step of the whole schedule with a number changed by a factor.
double log_step(const Scenario& scenario, sim::Platform platform, const std::string& name, double factor) {
  Scenario changed = scenario;
  for (const Constant& constant : constants_of(*platform.accelerator, changed.framework))
    if (constant.name == name) constant.quantity->value *= factor;
  return std::log(predict_step(changed, platform).prediction.step_ms);
}

}  // namespace

TEST_CASE("derivatives of --limits are those of whole steps, interference and network included") {
  const Scenario scenario = parse_scenario(kLimitsScenario, "s.toml");
  const sim::Platform platform = sim::read_platform(scenario.platform);
  std::vector<Sensitivity> numbers = sensitivities_of(scenario, platform);
  REQUIRE(numbers.size() > 8);
  const auto is_there = [&](const std::string& name) {
    return std::any_of(numbers.begin(), numbers.end(), [&](const Sensitivity& s) { return s.constant == name; });
  };
  CHECK(is_there("accelerator.beside_communication.gemm"));
  CHECK(is_there("accelerator.network.GBps"));
  for (std::size_t i = 1; i < numbers.size(); ++i)
    CHECK(std::abs(numbers[i].pct_per_pct) <= std::abs(numbers[i - 1].pct_per_pct));
  if (testing::is_fast_suite()) numbers.resize(4);
  for (const Sensitivity& number : numbers) {
    CAPTURE(number.constant);
    const double difference =
        log_step(scenario, platform, number.constant, 1.01) - log_step(scenario, platform, number.constant, 0.99);
    CHECK(number.pct_per_pct == Approx(difference / std::log(1.01 / 0.99)).epsilon(0.01).margin(2e-4));
  }
}

}  // namespace stretto::predict
