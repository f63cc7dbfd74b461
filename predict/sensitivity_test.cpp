#include "predict/sensitivity.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "predict/constants.hpp"
#include "predict/predict_step.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "tests/cases.hpp"
#include "tests/random_gpu_scenario.hpp"

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

// Steps of a whole schedule, which is verified once.
class WholeStep {
 public:
  WholeStep(const Scenario& scenario, const sim::Platform& platform)
      : scenario_(scenario), platform_(platform), verified_(plan_and_verify(build_schedule(scenario))) {}
  // Returns ln of the step with a number changed by a factor.
  double log_step_with(const std::string& name, double factor) const {
    sim::Platform platform = platform_;
    Framework framework = scenario_.framework;
    for (const Constant& constant : constants_of(*platform.accelerator, framework))
      if (constant.name == name) constant.quantity->value *= factor;
    const sim::Costs costs =
        sim::cost_schedule(verified_.schedule, platform, scenario_.cluster, 1, framework, scenario_.training);
    return std::log(double(sim::simulate(verified_.schedule, static_cast<const BoundStep&>(verified_), costs).step));
  }

 private:
  const Scenario& scenario_;
  const sim::Platform& platform_;
  VerifiedSchedule verified_;
};

// Derivatives that were compared.
struct Compared {
  int scenarios = 0, simulated = 0, equal = 0, at_corner = 0, wrong = 0;
};

// A step has corners where two causes of a time change places: a derivative there is that of one side.
void compare_numbers(const std::string& text, Compared& compared) {
  constexpr double kStep = 1e-3, kMargin = 1e-4;
  const Scenario scenario = parse_scenario(text, "s.toml");
  const sim::Platform platform = sim::read_platform(scenario.platform);
  const WholeStep whole(scenario, platform);
  std::string why_simulated;
  const std::vector<Sensitivity> numbers = sensitivities_of(scenario, platform, &why_simulated);
  ++compared.scenarios;
  if (!why_simulated.empty()) {
    ++compared.simulated;
    if (std::getenv("STRETTO_DERIVATIVES_PRINT") != nullptr) WARN(why_simulated << "\n" << text);
    return;
  }
  for (const Sensitivity& number : numbers) {
    const auto log_step_at = [&](double factor) { return whole.log_step_with(number.constant, factor); };
    const double here = log_step_at(1);
    const double left = (here - log_step_at(1 - kStep)) / -std::log(1 - kStep);
    const double right = (log_step_at(1 + kStep) - here) / std::log(1 + kStep);
    const double central = (left + right) / 2, allowed = 0.01 * std::abs(central) + kMargin;
    CAPTURE(number.constant, number.pct_per_pct, left, right);
    if (std::abs(number.pct_per_pct - central) <= allowed)
      ++compared.equal;
    else if (number.pct_per_pct > std::min(left, right) - allowed &&
             number.pct_per_pct < std::max(left, right) + allowed)
      ++compared.at_corner;
    else
      ++compared.wrong;
    if (std::getenv("STRETTO_DERIVATIVES_PRINT") != nullptr && std::abs(number.pct_per_pct - central) > allowed)
      WARN(number.constant << " " << number.pct_per_pct << " left " << left << " right " << right << "\n" << text);
  }
}

}  // namespace

TEST_CASE("derivatives of --limits are those of whole steps, interference and network included") {
  const Scenario scenario = parse_scenario(kLimitsScenario, "s.toml");
  const sim::Platform platform = sim::read_platform(scenario.platform);
  std::string why_simulated;
  std::vector<Sensitivity> numbers = sensitivities_of(scenario, platform, &why_simulated);
  CHECK(why_simulated.empty());
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

TEST_CASE("derivatives of random steps are those of whole steps") {
  const auto scenarios = static_cast<int>(testing::from_environment("STRETTO_DERIVATIVES", testing::share_of(16)));
  Compared compared;
  for (std::uint64_t seed = testing::from_environment("STRETTO_DERIVATIVES_SEED", 1); compared.scenarios < scenarios;
       ++seed) {
    CAPTURE(seed);
    try {
      compare_numbers(testing::random_gpu_scenario(seed), compared);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::input);
    }
  }
  CAPTURE(compared.scenarios, compared.simulated, compared.equal, compared.at_corner, compared.wrong);
  if (std::getenv("STRETTO_DERIVATIVES_PRINT") != nullptr)
    WARN(compared.scenarios << " scenarios, " << compared.simulated << " of them simulated: " << compared.equal
                            << " equal, " << compared.at_corner << " at a corner, " << compared.wrong << " wrong");
  CHECK(compared.wrong == 0);
  CHECK(compared.at_corner * 50 <= compared.equal);
  CHECK(compared.simulated * 10 <= compared.scenarios);
}

}  // namespace stretto::predict
