// Tests of the process that issues operations: HostCosts.
#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/platform.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// A pipeline of two tensor-parallel ranks a stage, run as by a framework that waits for its messages.
Scenario pipeline() {
  return parse_scenario(R"(platform = "a100-80gb"
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
data_parallel_size = 2
[training]
micro_batch_size = 1
global_batch_size = 16
)",
                        "host lane");
}

}  // namespace

TEST_CASE("no operation starts before it was issued, and the host begins a step when the device has ended the last",
          "[sim]") {
  Toy toy;
  toy.compute("a", 4 * us);
  toy.compute("b", 4 * us);
  toy.compute("c", 30 * us);
  toy.compute("d", 4 * us);
  toy.costs.host.issue = {10 * us, 10 * us, 10 * us, 10 * us};
  // a is issued at 10, b at 20, c at 30 to 60, d after c: the device is later than the host.
  CHECK(simulate(toy.schedule, toy.costs).step == 64 * us);
  toy.costs.host.step = 7 * us;
  CHECK(simulate(toy.schedule, toy.costs).step == 71 * us);
  toy.costs.host.issue = {1 * us, 1 * us, 1 * us, 1 * us};
  CHECK(simulate(toy.schedule, toy.costs).step == (7 + 1 + 42) * us);  // the host waits only for the first
}

TEST_CASE("issue times are in the order of the program, whatever the lane", "[sim]") {
  Toy toy;
  const OpId a = toy.compute("a", 1 * us);
  toy.compute("x", 1 * us, {}, 0, DemandClass::memory, 1);
  toy.compute("b", 1 * us, {after(a)});
  toy.costs.host.issue = {10 * us, 10 * us, 10 * us};
  CHECK(simulate(toy.schedule, toy.costs).step == 31 * us);
}

TEST_CASE("a host that waits for messages issues what follows when they are there", "[sim]") {
  CollectiveCost cost;
  cost.movement = {50 * us, 0, DemandClass::memory};
  cost.interference = KernelInterference{};
  for (const bool waits : {false, true}) {
    Toy toy(2);
    toy.message("send", true, cost, 1);
    toy.message("recv", false, cost, 1);
    toy.schedule.programs.front().order.back().joined = true;
    toy.compute("a", 1 * us);
    toy.costs.host.issue = {10 * us, 10 * us, 10 * us};
    toy.costs.host.waits_for_messages = waits;
    // Both are posted at 20, when the second is issued, and over at 70; a is issued at 30, or 10 after the messages.
    CHECK(simulate(toy.schedule, toy.costs).step == (waits ? 81 : 70) * us);
  }
}

TEST_CASE("a batch of messages starts when the host has issued the last of them", "[sim]") {
  CollectiveCost cost;
  cost.movement = {50 * us, 0, DemandClass::memory};
  cost.interference = KernelInterference{};
  for (const bool batched : {false, true}) {
    Toy toy(2);
    toy.message("send", true, cost, 1);
    toy.message("recv", false, cost, batched ? 1 : 2);
    toy.compute("a", 1 * us);
    toy.message("send again", true, cost, 1);
    toy.message("recv again", false, cost, batched ? 1 : 2);
    std::vector<Call>& order = toy.schedule.programs.front().order;
    order[1].joined = order[4].joined = batched;
    toy.costs.host.issue = {10 * us, 30 * us, 10 * us, 100 * us, 7 * us};
    const SimResult result = simulate(toy.schedule, toy.costs);
    std::vector<Picoseconds> starts(order.size());
    for (const TimelineRow& row : result.timeline.rows) starts[row.op] = row.start - result.timeline.step_begin;
    // Operations are issued at 10, 40, 50, 150 and 157; a message moves when both of its ends are posted.
    if (batched)
      CHECK(starts == std::vector<Picoseconds>{40 * us, 40 * us, 50 * us, 157 * us, 157 * us});
    else
      CHECK(starts == std::vector<Picoseconds>{10 * us, 40 * us, 50 * us, 150 * us, 157 * us});
    CHECK(result.step == (157 + 50) * us);
  }
}

TEST_CASE("a host that waits for messages does not wait for those with a lane for each side", "[sim]") {
  CollectiveCost cost;
  cost.movement = {50 * us, 0, DemandClass::memory};
  cost.interference = KernelInterference{};
  Toy toy(2);
  toy.message("send", true, cost, 1);
  toy.message("recv", false, cost, 2);
  toy.compute("a", 1 * us);
  toy.costs.host.issue = {10 * us, 10 * us, 10 * us};
  toy.costs.host.waits_for_messages = true;
  CHECK(simulate(toy.schedule, toy.costs).step == 70 * us);
}

TEST_CASE("messages concurrent with compute run under a framework whose process waits for batches of messages",
          "[sim]") {
  // If the process waited for a receive that is posted early, it would wait forever: the peer issues its send later.
  Scenario scenario = pipeline();
  scenario.parallel.sequence_parallel = true;
  const auto step_of = [&] {
    const Schedule schedule = build_schedule(scenario);
    const VerifiedSchedule verified = plan_and_verify(schedule);
    const Costs costs =
        cost_schedule(schedule, read_platform(scenario.platform), scenario.cluster, 1, scenario.framework);
    REQUIRE(costs.host.waits_for_messages);
    return simulate(schedule, verified, costs).step;
  };
  const Picoseconds batched = step_of();
  scenario.overlap.tp_comm_overlap = true;  // rings of messages
  CHECK(step_of() > 0);
  scenario.overlap.tp_comm_overlap = false;
  scenario.overlap.overlap_p2p_comm = true;
  CHECK(step_of() <= batched);
}

TEST_CASE("a host launches a CUDA graph in place of the kernels that it captures", "[sim][moepredict]") {
  const Scenario scenario = parse_scenario(
      "platform = \"h100-sxm\"\nprofile = \"megatron-bridge-moe\"\n[model]\npreset = \"qwen3-30b-a3b\"\n"
      "num_layers = 2\n[parallel]\ndata_parallel_size = 8\nexpert_model_parallel_size = 8\n[training]\n"
      "global_batch_size = 16\n",
      "s");
  const Schedule schedule = build_schedule(scenario);
  const auto host_of = [&](const std::vector<GraphModule>& modules) {
    Training training = scenario.training;
    training.cuda_graph_modules = modules;
    return cost_schedule(schedule, read_platform(scenario.platform), scenario.cluster, 1, scenario.framework, training)
        .host;
  };
  // Returns the host's time for the block.
  const auto of = [&](const HostCosts& host, const std::string& name) {
    Picoseconds sum = 0;
    for (const Block& block : schedule.blocks)
      if (block.name.starts_with(name))
        for (const OpId id : block.ops) sum += host.issue[id];
    return sum;
  };
  const Picoseconds launch = from_us(scenario.framework.host.us_of(HostKind::graph));
  const HostCosts none = host_of({}), router = host_of({GraphModule::moe_router}),
                  all = host_of({GraphModule::attn, GraphModule::moe_router, GraphModule::moe_preprocess}),
                  whole = host_of({GraphModule::full_iteration});
  for (const char* block : {"layer.forward", "layer.backward"}) {
    INFO(block);
    CHECK(of(router, block) < of(none, block));
    CHECK(of(all, block) < of(router, block));
    CHECK(of(whole, block) == 0);
  }
  // One graph from the layer's begin to the dispatch of rows.
  Picoseconds before = 0;
  for (const Block& block : schedule.blocks)
    if (block.name.starts_with("layer.forward"))
      for (const OpId id : block.ops) {
        if (schedule.operations[id].name == "experts.dispatch.fprop") break;
        before += all.issue[id];
      }
  CHECK(before == launch);
  CHECK_FALSE(none.waits_before.empty());
  CHECK(whole.waits_before.empty());
}

TEST_CASE("played calls are as simulated ones, with a host of any speed", "[sim]") {
  const Scenario scenario = pipeline();
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  Costs costs = cost_schedule(schedule, read_platform(scenario.platform), scenario.cluster, 1, scenario.framework);
  Picoseconds last = 0;
  for (const double speed : {0.0, 0.01, 0.1, 0.3, 1.0, 3.0}) {
    INFO("issue times " << speed);
    Costs slower = costs;
    for (Picoseconds& issue : slower.host.issue) issue = static_cast<Picoseconds>(double(issue) * speed);
    SimOptions options;
    const SimResult played = simulate(schedule, verified, slower, options);
    options.caches_solo_calls = false;
    const SimResult simulated = simulate(schedule, verified, slower, options);
    CHECK(played.step == simulated.step);
    CHECK(played.timeline.rows.size() == simulated.timeline.rows.size());
    bool same = true;
    for (std::size_t i = 0; i < played.timeline.rows.size() && same; ++i)
      same = played.timeline.rows[i].start == simulated.timeline.rows[i].start &&
             played.timeline.rows[i].end == simulated.timeline.rows[i].end;
    CHECK(same);
    CHECK(played.step >= last);
    last = played.step;
  }
}

TEST_CASE("a step that is simulated with several costs takes with each as long as alone", "[sim]") {
  const Scenario scenario = pipeline();
  const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario));
  const Costs costs =
      cost_schedule(verified.schedule, read_platform(scenario.platform), scenario.cluster, 1, scenario.framework);
  const RepeatedSimulation repeated(verified.schedule, verified);
  std::vector<Costs> all(5, costs);
  for (Demand& demand : all[1].compute) demand.alone *= 2;
  for (Picoseconds& issue : all[2].host.issue) issue *= 3;
  all[3].host = {};
  all[3].cores_per_device = 2;
  for (Demand& demand : all[3].compute) demand.cores = demand.alone > 0 ? 2 : 0;
  all[4].host.waits_for_messages = !costs.host.waits_for_messages;
  all.push_back(costs);
  all.push_back(costs);
  set_apart(all.back(), 1, 2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO("costs " << i);
    const SimResult alone = simulate(verified.schedule, verified, all[i]), again = repeated.simulate(all[i]);
    CHECK(again.step == alone.step);
    CHECK(again.operations == alone.operations);
    CHECK(again.programs.empty() == all[i].of_rank.empty());
    CHECK(std::equal(alone.timeline.rows.begin(), alone.timeline.rows.end(), again.timeline.rows.begin(),
                     again.timeline.rows.end(), [](const TimelineRow& a, const TimelineRow& b) {
                       return a.op == b.op && a.ready == b.ready && a.start == b.start && a.transfer == b.transfer &&
                              a.end == b.end && a.waited == b.waited;
                     }));
  }
  Costs none = costs;
  none.compute.clear();
  CHECK_THROWS_AS(repeated.simulate(none), Error);
}

}  // namespace stretto::sim
