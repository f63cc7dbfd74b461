#include "predict/fusions.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "model/build_schedule.hpp"
#include "model/scenario/given_keys.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/cost/features.hpp"
#include "tests/temp_dir.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

// A GPU on which every operation of the schedules costs a microsecond, epilogues `epilogue_us`, and norms' gradients in
// one operation 1.5.
sim::Platform gpu_of(const std::vector<Scenario>& scenarios, double epilogue_us) {
  sim::Platform platform;
  platform.name = "a GPU";
  platform.gpu.emplace();
  const auto add = [&](const sim::WorkCost& cost, double us) {
    sim::CostFit fit;
    fit.coefficients.assign(cost.features.size(), 0);
    fit.coefficients.front() = us;
    platform.costs[cost.key] = fit;
  };
  for (const Scenario& scenario : scenarios) {
    const Schedule schedule = build_schedule(scenario);
    for (const Operation& operation : schedule.operations) {
      if (is_communication(operation.work)) continue;
      const sim::WorkCost cost = sim::work_cost(schedule, operation);
      const bool is_gemm = std::holds_alternative<Gemm>(operation.work);
      add(cost, cost.parts.empty() ? 1 : is_gemm ? epilogue_us : 1.5);
      for (const sim::WorkCost& part : cost.parts) add(part, 1);
    }
  }
  return platform;
}

Scenario fused(Scenario scenario) {
  Training& training = scenario.training;
  training.gelu_fusion = training.bias_gradient_fusion = training.residual_fusion = training.norm_gradient_fusion =
      true;
  return scenario;
}

}  // namespace

TEST_CASE("fusions that a scenario leaves open are on where they were measured faster") {
  const Scenario scenario = layout_scenario({1, 1}, "plain", false, "bf16");
  const auto chosen = [&](const std::set<std::string>& given, const sim::Platform* platform) {
    Scenario result = scenario;
    const predict::Fusions fusions = predict::choose_fusions(scenario, given, platform);
    CHECK(predict::fusions_of(predict::bits_of(fusions), "").on == fusions.on);
    fusions.apply(result);
    const Training& t = result.training;
    return std::pair{std::vector<bool>{t.gelu_fusion, t.bias_gradient_fusion, t.residual_fusion, t.norm_gradient_fusion,
                                       t.gelu_bias_gradient_fusion},
                     fusions.note};
  };
  using On = std::vector<bool>;
  Scenario sums_gelu = fused(scenario);
  sums_gelu.training.gelu_bias_gradient_fusion = true;
  const std::vector<Scenario> known = {scenario, fused(scenario), sums_gelu};
  const sim::Platform fast = gpu_of(known, 1.2), slow = gpu_of(known, 2.5), unmet = gpu_of({scenario}, 1);
  const auto [all, why] = chosen({}, &fast);
  CHECK(all == On{true, true, true, true, true});
  CHECK_THAT(why, Catch::Contains("gelu_bias_gradient_fusion on (saves"));
  CHECK_THAT(why,
             Catch::Contains("platform a GPU: gelu_fusion on (saves") && Catch::Contains("norm_gradient_fusion on"));
  const auto [norms, why_norms] = chosen({}, &slow);
  CHECK(norms == On{false, false, false, true, false});
  CHECK_THAT(why_norms, !Catch::Contains("gelu_bias_gradient_fusion"));  // it needs another fusion, which is off
  CHECK_THAT(why_norms, Catch::Contains("residual_fusion off (not faster)"));
  CHECK(chosen({}, &unmet).first == On{false, false, false, false, false});
  // A given value stays, on or off.
  CHECK(chosen({"gelu_fusion", "norm_gradient_fusion"}, &fast).first == On{false, true, true, false, false});
  // Nothing is calibrated: tuning decides about epilogues.
  const auto [tuned, why_tuned] = chosen({}, nullptr);
  CHECK(tuned == On{true, true, true, false, false});
  CHECK_THAT(why_tuned, Catch::Contains("gelu_bias_gradient_fusion off (not measured; stretto calibrate"));
  CHECK_THAT(why_tuned, Catch::Contains("norm_gradient_fusion off (not measured; stretto calibrate"));
  // A host does not use them either.
  const auto [host, why_host] = chosen({}, [] {
    static const sim::Platform p;
    return &p;
  }());
  CHECK(host == On{false, false, false, false, false});
  CHECK(why_host.empty());
}

TEST_CASE("fusions whose gates are closed are not spoken of") {
  const Scenario llama = layout_scenario({1, 1}, "plain", true, "bf16");
  const predict::Fusions fusions = predict::choose_fusions(llama, {}, nullptr);
  CHECK_THAT(fusions.note, !Catch::Contains("gelu_fusion") && Catch::Contains("residual_fusion on"));
}

TEST_CASE("keys that a file, its profile or an override gives are distinguished from those that have defaults") {
  const TempDir dir;
  const std::string file = dir.write("s.toml", "profile = \"stretto\"\n[training]\nlr = 1e-3\n");
  const std::set<std::string> keys = given_keys(file, {"training.seed=3"}, "training");
  CHECK(keys == std::set<std::string>{"lr", "seed", "precision", "gelu_fusion", "bias_gradient_fusion",
                                      "residual_fusion", "norm_gradient_fusion"});
  CHECK(given_keys(dir.write("plain.toml", "[model]\n"), {}, "training").empty());
}

}  // namespace stretto::testing
