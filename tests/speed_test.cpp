#include <algorithm>
#include <catch2/catch.hpp>
#include <ctime>
#include <filesystem>
#include <optional>

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

// 61 layers on 16 stages; each rank has four experts of 256.
Scenario deepseek_v3() {
  return parse_scenario(
      "name = \"deepseek-v3\"\nplatform = \"h100-sxm\"\nprofile = \"megatron-bridge-moe\"\n"
      "[model]\npreset = \"deepseek-v3\"\nseq_length = 4096\n"
      "[parallel]\ndata_parallel_size = 128\npipeline_model_parallel_size = 16\n"
      "pipeline_model_parallel_layout = \"Etttt|(tttt|)*14tL\"\nexpert_model_parallel_size = 64\n"
      "expert_tensor_parallel_size = 1\nmoe_token_dispatcher_type = \"flex\"\n"
      "moe_flex_dispatcher_backend = \"deepep\"\n"
      "[training]\nmicro_batch_size = 1\nglobal_batch_size = 15360\nrecompute_granularity = \"selective\"\n"
      "recompute_modules = [\"core_attn\", \"mla_up_proj\", \"layernorm\", \"moe_act\", \"shared_experts\"]\n",
      "deepseek.toml");
}

struct Cost {
  double cpu_s = 0;  // CPU time of the fastest of three
  std::int64_t operations = 0;
};

Cost cost_of(const Scenario& scenario, std::optional<std::int64_t> straggler = {}) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path();
  const sim::Platform platform =
      sim::read_platform(scenario.platform.empty() ? (root / "docs/measured/host.toml").string() : scenario.platform);
  Cost cost{1e9, 0};
  for (int i = 0; i < 3; ++i) {
    const std::clock_t begin = std::clock();
    const Schedule schedule = build_schedule(scenario);
    VerifiedSchedule verified = plan_and_verify(schedule);
    sim::Costs costs =
        sim::cost_schedule(schedule, platform, scenario.cluster, 1, scenario.framework, scenario.training);
    if (straggler) sim::set_apart(costs, *straggler, 1.1);
    const sim::SimResult result = sim::simulate(schedule, std::move(verified), costs);
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

TEST_CASE("DeepSeek-V3 is built, verified and simulated in a second on 2,048 ranks, with a straggler in a few",
          "[speed]") {
  const Cost equal = cost_of(deepseek_v3()), with_straggler = cost_of(deepseek_v3(), 5);
  CAPTURE(equal.cpu_s, with_straggler.cpu_s);
  CHECK(equal.operations > 700'000);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(equal.cpu_s < 1);
  CHECK(with_straggler.cpu_s < 6 * equal.cpu_s);
#endif
}
