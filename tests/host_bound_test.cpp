// Tests of Breakdown::host against closed forms: the time that the compute lane waits for the process that issues
// operations.
#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "report/exposure.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/platform.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

struct Simulated {
  SimResult result;
  Breakdown breakdown;
};
Simulated simulated(const Toy& toy) {
  SimResult result = simulate(toy.schedule, toy.costs);
  const Breakdown b = mean_breakdown(toy.schedule, result.programs, result.timeline);
  CHECK(b.compute + b.core_wait + b.exposed_total + b.queue_wait + b.bubble == result.step);
  CHECK(b.host <= b.bubble);
  return {std::move(result), b};
}

}  // namespace

TEST_CASE("a device waits for its host until the next kernel is issued", "[exposure]") {
  Toy toy;
  toy.compute("a", 4 * us);
  toy.compute("b", 4 * us);
  toy.compute("c", 30 * us);
  toy.compute("d", 4 * us);
  toy.costs.host.issue = {10 * us, 10 * us, 10 * us, 10 * us};
  // a is issued at 10 and runs to 14, b 20 to 24, c 30 to 60; d has been issued at 40 and begins at 60.
  Simulated s = simulated(toy);
  CHECK(s.result.step == 64 * us);
  CHECK(s.breakdown.host == (10 + 6 + 6) * us);
  CHECK(s.breakdown.bubble == s.breakdown.host);
  // The lane waits for a fast host only at the beginning of a step.
  toy.costs.host.step = 7 * us;
  toy.costs.host.issue = {1 * us, 1 * us, 1 * us, 1 * us};
  s = simulated(toy);
  CHECK(s.result.step == (8 + 42) * us);
  CHECK(s.breakdown.host == 8 * us);
  toy.costs.host = {};
  CHECK(simulated(toy).breakdown.host == 0);
}

TEST_CASE("a communication that is awaited and not issued is waiting for the host, its transfer is exposed",
          "[exposure]") {
  CollectiveCost cost;
  cost.movement = {50 * us, 0, DemandClass::memory};
  cost.interference = KernelInterference{};
  Toy toy(2);
  const OpId a = toy.compute("a", 4 * us);
  const OpId r = toy.collective("r", cost, {after(a)});
  toy.compute("b", 1 * us, {after(r)});
  toy.costs.host.issue = {10 * us, 10 * us, 10 * us};
  // a runs 10 to 14; r is issued at 20 and over at 70; b follows at once.
  const Simulated s = simulated(toy);
  CHECK(s.result.step == 71 * us);
  CHECK(s.breakdown.exposed_total == 50 * us);
  CHECK(s.breakdown.host == (10 + 6) * us);
}

TEST_CASE("waiting for a peer is no waiting for the host", "[exposure]") {
  CollectiveCost cost;
  cost.movement = {10 * us, 0, DemandClass::memory};
  cost.interference = KernelInterference{};
  Toy toy(2);
  toy.compute("a", 20 * us);
  const OpId r = toy.collective("r", cost, {after(0)});
  toy.compute("b", 5 * us, {after(r)});
  toy.forbid_folding();
  toy.costs.of_rank[1] = toy.costs;
  toy.costs.of_rank[1].compute[0].alone = 100 * us;  // the straggler
  toy.costs.host.issue = {1 * us, 1 * us, 1 * us};
  const Simulated s = simulated(toy);
  CHECK(s.result.step == (1 + 100 + 10 + 5) * us);
  CHECK(s.breakdown.exposed_total == 10 * us);
  CHECK(s.breakdown.host == 1 * us);
  CHECK(s.breakdown.bubble == (1 + 80 / 2) * us);
}

TEST_CASE("a host without issue times is not waited for, also where it waits for messages", "[exposure]") {
  const Scenario scenario = parse_scenario(R"(platform = "a100-80gb"
profile = "megatron-deepspeed"
[model]
num_layers = 8
hidden_size = 1024
num_attention_heads = 16
seq_length = 1024
vocab_size = 50304
[parallel]
pipeline_model_parallel_size = 4
tensor_model_parallel_size = 2
[training]
global_batch_size = 8
)",
                                           "host bound");
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  Costs costs = cost_schedule(schedule, read_platform(scenario.platform), scenario.cluster, 1, scenario.framework);
  REQUIRE(costs.host.waits_for_messages);
  const auto host_share = [&] {
    const SimResult result = simulate(schedule, verified, costs);
    const Breakdown b = mean_breakdown(schedule, result.programs, result.timeline);
    CHECK(b.bubble > 0);
    return double(b.host) / double(result.step);
  };
  const double as_stated = host_share();
  CHECK(as_stated > 0.1);
  costs.host.step = costs.host.micro_batch = 0;
  for (Picoseconds& issue : costs.host.issue) issue = 0;
  CHECK(host_share() == 0);
}

}  // namespace stretto::sim
