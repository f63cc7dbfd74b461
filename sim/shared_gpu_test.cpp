// Tests of a GPU that ranks share (docs/simulation.md): compute kernels alternate, communication kernels are concurrent
// with them.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// Two ranks on one GPU, links that take no time.
Toy shared_gpu() {
  Toy toy(2, 2);
  toy.costs.cores_per_device = 1;
  toy.costs.sleeps_for_cores = false;
  toy.costs.wake = 3 * us;
  return toy;
}

// A kernel that moves for `alone` on each rank; it slows compute of class gemm by `slows`, and is slowed by `slowed`.
CollectiveCost kernel(Picoseconds alone, double slows, double slowed) {
  CollectiveCost cost{0, 0, {alone, 0, DemandClass::memory}, 1};
  cost.interference.emplace();
  cost.interference->slows[static_cast<int>(DemandClass::gemm)] = slows;
  cost.interference->slowed[static_cast<int>(DemandClass::gemm)] = slowed;
  return cost;
}

}  // namespace

TEST_CASE("compute kernels of a GPU take turns, without waking up", "[sim]") {
  Toy toy = shared_gpu();
  const OpId a = toy.compute("a", 10 * us, {}, 1), b = toy.compute("b", 10 * us, {}, 1);
  const SimResult result = one_step(toy);
  CHECK(row_of(result, a, 0).start == 0);
  CHECK(row_of(result, a, 1).ready == 0);
  CHECK(row_of(result, a, 1).start == 10 * us);
  CHECK(row_of(result, b, 0).start == 20 * us);
  CHECK(row_of(result, b, 1).end == 40 * us);
}

TEST_CASE("a communication kernel waits for no turn, and both sides pay", "[sim]") {
  Toy toy = shared_gpu();
  const OpId all_reduce = toy.collective("all_reduce", kernel(20 * us, 0.25, 1));
  const OpId gemm = toy.compute("gemm", 30 * us, {}, 1);
  const SimResult result = one_step(toy);
  // From 0 both ranks' kernels move, at half their rate while the GEMM runs: until 40. The GEMM of rank 0 does 1/1.5 of
  // its work meanwhile, so that at 40 it has 30 − 40/1.5 = 10/3 us left.
  CHECK(row_of(result, all_reduce, 0).start == 0);
  CHECK(row_of(result, all_reduce, 0).end == 40 * us);
  CHECK(row_of(result, all_reduce, 1).end == 40 * us);
  const double first_end = 40 + 10.0 / 3;
  CHECK(to_us(row_of(result, gemm, 0).end) == Approx(first_end).margin(1e-5));
  CHECK(to_us(row_of(result, gemm, 1).end) == Approx(first_end + 30).margin(1e-5));
}

TEST_CASE("what a kernel costs ends with it, and classes differ", "[sim]") {
  Toy toy = shared_gpu();
  const OpId all_reduce = toy.collective("all_reduce", kernel(12 * us, 0.25, 0));
  const OpId gemm = toy.compute("gemm", 30 * us, {}, 1);
  const OpId norm = toy.compute("norm", 30 * us, {}, 1, DemandClass::vector, 2);
  const SimResult result = one_step(toy);
  CHECK(row_of(result, all_reduce).end == 12 * us);
  // 12 us at 1/1.5, the rest alone; then the other kernels, one after the other.
  CHECK(row_of(result, gemm, 0).end == 34 * us);
  CHECK(row_of(result, norm, 0).end - row_of(result, norm, 0).start == 30 * us);
}

TEST_CASE("one rank a GPU: its communication kernel is concurrent with its own compute", "[sim]") {
  Toy toy(2, 1);
  toy.costs.cores_per_device = 1;
  toy.costs.sleeps_for_cores = false;
  const OpId all_reduce = toy.collective("all_reduce", kernel(20 * us, 0.5, 0));
  const OpId gemm = toy.compute("gemm", 30 * us, {}, 1);
  const SimResult result = one_step(toy);
  CHECK(row_of(result, all_reduce).end == 20 * us);
  CHECK(to_us(row_of(result, gemm).end) == Approx(20 + 30 - 20 / 1.5).margin(1e-5));
}

TEST_CASE("channels of kernels concurrent with compute hold no cores", "[sim]") {
  Toy toy = shared_gpu();
  toy.schedule.communicators.front() = {"dp", {Coord::dp}, CommEngine::sm, 16, 2};
  CollectiveCost cost = kernel(20 * us, 0, 0);
  SECTION("so that no device is too small for them") {
    const OpId all_reduce = toy.collective("all_reduce", cost);
    CHECK(row_of(one_step(toy), all_reduce).end == 20 * us);
  }
  SECTION("and none may be asked for") {
    cost.cores = 1;
    toy.collective("all_reduce", cost);
    CHECK_THROWS_WITH(one_step(toy), Catch::Contains("runs concurrently with compute"));
  }
}

}  // namespace stretto::sim
