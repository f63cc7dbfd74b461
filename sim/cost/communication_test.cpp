#include "sim/cost/communication.hpp"

#include <catch2/catch.hpp>

#include "model/lower/builder.hpp"

namespace stretto::sim {
namespace {

constexpr std::int64_t kElements = 1 << 20;

// A collective and a message of 2 MiB of bf16 among four ranks.
Schedule communicating(CommEngine engine, int channels = 1) {
  Schedule schedule;
  schedule.compute_dtype = Dtype::bf16;
  schedule.mesh = Mesh({{Coord::dp, 4}});
  schedule.communicators = {{"dp", {Coord::dp}, engine, channels, 4}};
  const TensorId buffer = add_tensor(schedule, "buffer", Dtype::bf16, BufferKind::workspace, 1, kElements);
  const View all = whole(schedule, buffer);
  schedule.operations = {
      {"all_reduce", Collective{CollectiveKind::all_reduce, 0, kElements}, 0, Phase::grad_sync, {accumulate(all)}},
      {"send", PointToPoint{true, 0, 1, kElements}, 0, Phase::forward, {read(all)}},
      {"recv", PointToPoint{false, 0, -1, kElements}, 0, Phase::forward, {write(all)}},
  };
  return schedule;
}

Platform gpus() {
  Platform platform;
  platform.name = "four GPUs";
  Gpu& gpu = platform.gpu.emplace();
  gpu.ctas = 16;
  for (auto* curves :
       {&gpu.beside_moving, &gpu.beside_waiting, &gpu.moving_beside, &gpu.beside_copying, &gpu.copying_beside})
    curves->fill({{16, 32}, {0.1, 0.2}, {}});
  platform.costs["nccl_all_reduce"] = {{5, 2, 1e-5}, {}};              // start, step, byte over an edge
  platform.costs["nccl_all_reduce_channels"] = {{5, 2, 0, 1e-4}, {}};  // … byte of a channel
  platform.costs["nccl_message"] = {{3, 1e-5}, {}};
  return platform;
}

CollectiveCost cost_of(const Schedule& schedule, std::size_t op, const Platform& platform) {
  Cluster cluster;
  cluster.network = Network::nccl;
  return communication_cost(schedule, schedule.operations[op], platform, cluster,
                            [](const WorkCost&) { return Demand{}; });
}

}  // namespace

TEST_CASE("NCCL's time is what was measured, with nothing of the links besides", "[sim]") {
  // A ring of four: 6 steps, 2 · 3/4 of 2 MiB over each edge.
  const double bytes = 1.5 * 2 * kElements;
  const Schedule schedule = communicating(CommEngine::nic);
  const CollectiveCost cost = cost_of(schedule, 0, gpus());
  CHECK(to_us(cost.movement.alone) == Approx(5 + 6 * 2 + bytes * 1e-5));
  CHECK(cost.phases == 1);
  CHECK(cost.latency == 0);
  CHECK(cost.edge_bytes == 0);
  REQUIRE(cost.interference);
  CHECK(cost.interference->slows[0] == Approx(0.1));  // of the 16 blocks that NCCL is assumed to have
  CHECK(cost.interference->slowed[0] == Approx(0.1));

  const CollectiveCost of_channels = cost_of(communicating(CommEngine::sm, 8), 0, gpus());
  CHECK(to_us(of_channels.movement.alone) == Approx(5 + 6 * 2 + bytes / 8 * 1e-4));
  CHECK(of_channels.interference->slows[0] == Approx(0.05));  // of 8

  // By a copy engine: one copy is concurrent with compute, no thread block.
  const CollectiveCost copied = cost_of(communicating(CommEngine::copy_engine), 0, gpus());
  CHECK(copied.movement.alone == cost.movement.alone);
  CHECK(copied.interference->slows[0] == Approx(0.1 / 16));

  CHECK(cost_of(schedule, 1, gpus()).movement.alone == 0);  // the receiver moves the message
  CHECK(to_us(cost_of(schedule, 2, gpus()).movement.alone) == Approx(3 + 2.0 * kElements * 1e-5));
}

TEST_CASE("NCCL that was not measured is refused", "[sim]") {
  CHECK_THROWS_WITH(cost_of(communicating(CommEngine::sm, 8), 2, gpus()),
                    Catch::Contains("no cost \"nccl_message_channels\"") &&
                        Catch::Contains("stretto calibrate --backend cuda --ranks N"));
  Platform host = gpus();
  host.gpu.reset();
  CHECK_THROWS_WITH(cost_of(communicating(CommEngine::nic), 0, host),
                    Catch::Contains("four GPUs is a host") && Catch::Contains("network = \"nccl\""));
}

}  // namespace stretto::sim
