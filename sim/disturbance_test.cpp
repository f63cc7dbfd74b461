// Noise costs ranks that meet often the bursts of all of them.
#include <catch2/catch.hpp>

#include "sim/engine.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// A step of 1,000 operations of 10 µs on each of `ranks` ranks, which meet after every `stride` of them.
double slowdown(std::int64_t ranks, int stride, const Disturbance& disturbance) {
  Toy toy(ranks, ranks);
  toy.costs.cores_per_device = static_cast<int>(ranks);
  toy.costs.disturbance = disturbance;
  constexpr int kOps = 1000;
  for (int i = 0; i < kOps; ++i) {
    toy.compute("c" + std::to_string(i), 10 * us, {}, 1);
    if ((i + 1) % stride == 0) toy.collective("m" + std::to_string(i), {}, {}, 0);
  }
  toy.forbid_folding();
  return double(simulate(toy.schedule, toy.costs).step) / (kOps * 10.0 * double(us)) - 1;
}

}  // namespace

TEST_CASE("one rank loses the share that is taken from it", "[sim]") {
  CHECK(slowdown(1, 1000, {}) == 0);
  for (const double share : {0.02, 0.2}) CHECK(slowdown(1, 1000, {share, 20 * us}) == Approx(share).epsilon(0.1));
}

TEST_CASE("ranks that meet all the time lose what is taken from any of them", "[sim]") {
  // Bursts are rarer than operations, so few coincide.
  const Disturbance rare{0.05, 100 * us};
  CHECK(slowdown(4, 1, {0.02, 100 * us}) == Approx(0.08).epsilon(0.25));
  // The loss lies between the bursts of one and those of all: bursts within a long stretch even out.
  const double often = slowdown(2, 1, rare), seldom = slowdown(2, 1000, rare), alone = slowdown(1, 1000, rare);
  CHECK(often > 1.5 * alone);
  CHECK(seldom < often);
  CHECK(seldom > alone);
}

TEST_CASE("where a core is shared by time, what others had while a rank slept they do not take again", "[sim]") {
  // Each rank loses half of its core to a process that always computes. While one rank has lost its core the others
  // wait, and that time counts for what they would lose next.
  const Disturbance hungry{1, 3000 * us, true}, random{1, 3000 * us};
  CHECK(slowdown(1, 1000, hungry) == Approx(1).epsilon(0.2));
  const double together = slowdown(2, 1, hungry);
  CHECK(together > 0.9);
  CHECK(together < 1.6);
  CHECK(together < 0.85 * slowdown(2, 1, random));
}

TEST_CASE("all disturbed steps are there, and the result is the one in the middle", "[sim]") {
  Toy toy(1, 1);
  toy.costs.cores_per_device = 1;
  toy.costs.disturbance = {0.2, 20 * us};
  toy.compute("c", 100 * us, {}, 1);
  const SimResult result = simulate(toy.schedule, toy.costs);
  REQUIRE(result.disturbed.size() == 39);
  int shorter = 0;
  for (const Timeline& step : result.disturbed) {
    CHECK(step.rows.size() == result.timeline.rows.size());
    shorter += step.step_end - step.step_begin < result.step;
  }
  CHECK(shorter <= 19);
  toy.costs.disturbance = {};
  CHECK(simulate(toy.schedule, toy.costs).disturbed.empty());
}

TEST_CASE("what is disturbed is the same every time", "[sim]") {
  CHECK(slowdown(2, 3, {0.05, 50 * us}) == slowdown(2, 3, {0.05, 50 * us}));
}

}  // namespace stretto::sim
