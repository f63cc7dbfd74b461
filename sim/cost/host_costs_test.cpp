#include "sim/cost/host_costs.hpp"

#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "model/host_kind.hpp"
#include "model/schedule/gradient_reduction.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::sim {
namespace {

Scenario experts(std::int64_t ep, const std::string& more = "") {
  return parse_scenario(
      "platform = \"h100-sxm\"\nprofile = \"megatron-bridge-moe\"\n[model]\npreset = \"qwen3-30b-a3b\"\n"
      "num_layers = 2\n[parallel]\ndata_parallel_size = 8\nexpert_model_parallel_size = " +
          std::to_string(ep) + "\n[training]\nglobal_batch_size = 16\n" + more,
      "s");
}

Quantity of(double value) { return {value, {}}; }

HostCosts costs_of(const Scenario& scenario, const Cpu& cpu = {}) {
  return host_costs(build_schedule(scenario), scenario.framework, scenario.training, cpu, false);
}

}  // namespace

TEST_CASE("each expert of a rank costs the host a launch in C++ for each product, whatever Python takes", "[sim]") {
  const auto block_us = [](std::int64_t ep, double python) {
    Scenario scenario = experts(ep);
    scenario.framework.host = {};
    scenario.framework.host.us[static_cast<std::size_t>(HostKind::grouped)] = {of(10), {}};
    scenario.framework.host.python = of(python);
    scenario.framework.host.cpp_us = of(6);
    const Schedule schedule = build_schedule(scenario);
    const HostCosts host = host_costs(schedule, scenario.framework, scenario.training, {}, false);
    Picoseconds sum = 0;
    for (OpId id = 0; id < schedule.operations.size(); ++id)
      if (std::holds_alternative<GroupedGemm>(schedule.operations[id].work)) sum += host.issue[id];
    return static_cast<double>(sum) * 1e-6;
  };
  // A layer has six products of experts, of 128 / ep experts each.
  CHECK(block_us(4, 1) == Approx(6 * (10 + 32 * 6)));
  CHECK(block_us(8, 1) == Approx(6 * (10 + 16 * 6)));
  CHECK(block_us(4, 3) == Approx(6 * (3 * 10 + 32 * 6)));
}

TEST_CASE("a slower CPU takes longer for Python and for C++", "[sim]") {
  Scenario scenario = experts(8);
  const HostCosts x86 = costs_of(scenario), slower = costs_of(scenario, {of(2), of(2)});
  CHECK(slower.step == 2 * x86.step);
  CHECK(slower.parameter == 2 * x86.parameter);
  for (std::size_t i = 0; i < x86.issue.size(); ++i)
    CHECK(static_cast<double>(slower.issue[i]) == Approx(2 * static_cast<double>(x86.issue[i])));
}

TEST_CASE("a framework that checks gradients waits for the device before each bucket's reduction", "[sim]") {
  Scenario scenario = experts(8);
  CHECK(costs_of(scenario).waits_for_device_before.empty());
  scenario.framework.host.checks_gradients = true;
  const Schedule schedule = build_schedule(scenario);
  const HostCosts host = costs_of(scenario);
  REQUIRE_FALSE(host.waits_for_device_before.empty());
  for (const OpId id : host.waits_for_device_before) CHECK(reduces_gradients(schedule, schedule.operations[id]));
  CHECK(host.device_sync == 2 * host.sync);
}

}  // namespace stretto::sim
