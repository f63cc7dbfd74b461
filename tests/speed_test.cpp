#include <algorithm>
#include <catch2/catch.hpp>
#include <ctime>
#include <filesystem>

#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

using namespace stretto;

namespace {

Scenario gpt3(std::int64_t dp) {
  return parse_scenario(
      "name = \"gpt3\"\n"
      "[model]\npreset = \"gpt3-175b\"\n"
      "[cluster]\nranks_per_device = 1\ncores_per_device = 1\nlink_GBps = 50\n"
      "[parallel]\ntensor_model_parallel_size = 8\npipeline_model_parallel_size = 8\n"
      "sequence_parallel = true\ndata_parallel_size = " +
          std::to_string(dp) + "\n[training]\nmicro_batch_size = 1\nglobal_batch_size = " + std::to_string(96 * dp) +
          "\n",
      "gpt3.toml");
}

struct Cost {
  double cpu_s = 0;  // CPU time of the fastest of three
  std::int64_t operations = 0;
};

Cost cost_of(const Scenario& scenario) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path();
  const sim::Platform platform = sim::read_platform((root / "docs/measured/host.toml").string());
  Cost cost{1e9, 0};
  for (int i = 0; i < 3; ++i) {
    const std::clock_t begin = std::clock();
    const Schedule schedule = build_schedule(scenario);
    VerifiedSchedule verified = plan_and_verify(schedule);
    const sim::SimResult result =
        sim::simulate(schedule, std::move(verified), sim::cost_schedule(schedule, platform, scenario.cluster));
    cost.cpu_s = std::min(cost.cpu_s, double(std::clock() - begin) / CLOCKS_PER_SEC);
    cost.operations = result.operations;
    CHECK(result.steady);
  }
  return cost;
}

}  // namespace

// A million operations. The test only checks that nothing is slower by a factor: docs/simulation.md has the times.
TEST_CASE("GPT-3 175B is built, verified and simulated in a fraction of a second, on 1,024 ranks as on 16,384",
          "[speed]") {
  const Cost at_1024 = cost_of(gpt3(16)), at_16384 = cost_of(gpt3(256));
  CAPTURE(at_1024.cpu_s, at_16384.cpu_s);
  CHECK(at_1024.operations > 700'000);  // operations of two steps
  CHECK(std::abs(double(at_16384.operations) / double(at_1024.operations) - 1) < 0.01);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(at_1024.cpu_s < 0.6);
  CHECK(at_16384.cpu_s < 2 * at_1024.cpu_s);
#endif
}
