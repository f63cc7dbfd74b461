// Tests of communication that holds cores (docs/simulation.md, "Collectives"), and of priorities of waiting operations.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// Two ranks on one device of `cores` cores, with a communicator of one channel each.
Toy with_channel(int cores) {
  Toy toy(2, 2);
  toy.schedule.communicators.front().engine = CommEngine::sm;
  toy.costs.cores_per_device = cores;
  toy.costs.wake = 3 * us;
  return toy;
}

}  // namespace

TEST_CASE("channels hold cores from start to end, and compute queues for the rest", "[sim]") {
  Toy toy = with_channel(3);
  CollectiveCost cost{5 * us, 20000, {}, 1};  // 25 us
  cost.cores = 1;
  const OpId all_reduce = toy.collective("all_reduce", cost);
  const OpId first = toy.compute("first", 10 * us, {}, 1), second = toy.compute("second", 10 * us, {}, 1);
  const SimResult result = one_step(toy);
  // Rank 0's lanes get two cores and rank 1's compute the third; rank 1's channel gets the first released core.
  CHECK(row_of(result, first, 0).start == 0);
  CHECK(row_of(result, first, 1).start == 0);
  CHECK(row_of(result, all_reduce, 0).start == 0);
  CHECK(row_of(result, all_reduce, 1).ready == 0);
  CHECK(row_of(result, all_reduce, 1).start == 13 * us);
  // Rank 0's channel waits for its peer and keeps its core meanwhile.
  for (const std::int32_t rank : {0, 1}) {
    CHECK(row_of(result, all_reduce, rank).transfer == 13 * us);
    CHECK(row_of(result, all_reduce, rank).end == 38 * us);
  }
  CHECK(row_of(result, second, 0).start == 10 * us);
  CHECK(row_of(result, second, 1).start == 23 * us);
}

TEST_CASE("cores that channels gave back are there for what waits", "[sim]") {
  Toy toy = with_channel(3);
  CollectiveCost cost{5 * us, 20000, {}, 1};
  cost.cores = 1;
  toy.collective("all_reduce", cost);
  toy.compute("long", 100 * us, {}, 1);
  // Both ranks' second lane asks at 0, when two channels and a long operation have begun, or wait.
  const OpId concurrent = toy.compute("second", 10 * us, {}, 1, DemandClass::gemm, 2);
  const SimResult result = one_step(toy);
  // At 0 long and all_reduce of rank 0 run, and second of rank 0. At 10 rank 1's long gets that core, at 100 its
  // channel gets one.
  CHECK(row_of(result, concurrent, 0).start == 0);
  CHECK(row_of(result, concurrent, 1).start > 100 * us);
}

TEST_CASE("without cores to hold, nothing waits", "[sim]") {
  Toy toy = with_channel(0);  // cores are not limited
  CollectiveCost cost{5 * us, 20000, {10 * us, 0, DemandClass::memory}, 1};
  cost.cores = 1;
  const OpId all_reduce = toy.collective("all_reduce", cost);
  CHECK(row_of(one_step(toy), all_reduce).end == 25 * us);
}

TEST_CASE("what moves data on held cores slows its neighbours and is slowed", "[sim]") {
  Toy toy = with_channel(5);
  toy.costs.slowdown[static_cast<int>(DemandClass::gemm)][static_cast<int>(DemandClass::memory)] = 0.5;
  toy.costs.slowdown[static_cast<int>(DemandClass::memory)][static_cast<int>(DemandClass::gemm)] = 1.0;
  CollectiveCost cost{0, 0, {10 * us, 0, DemandClass::memory}, 1};
  cost.cores = 1;
  const OpId all_reduce = toy.collective("all_reduce", cost);
  const OpId gemm = toy.compute("gemm", 30 * us, {}, 1);
  const SimResult result = one_step(toy);
  // Movement takes twice as long while the GEMMs of both ranks run; the GEMMs take half as long again for these 20 us.
  CHECK(row_of(result, all_reduce).end == 20 * us);
  CHECK(row_of(result, gemm).end == Approx(20 * us + (30 - 20 / 1.5) * us).margin(2));
}

TEST_CASE("bursts meet what moves data on held cores", "[sim]") {
  Toy toy = with_channel(5);
  CollectiveCost cost{0, 0, {1000 * us, 0, DemandClass::memory}, 1};
  cost.cores = 1;
  const OpId all_reduce = toy.collective("all_reduce", cost);
  toy.costs.disturbance = {0.5, 10 * us};
  CHECK(row_of(one_step(toy), all_reduce).end > 1100 * us);
}

TEST_CASE("two rates on one link are limited each by itself", "[sim]") {
  Toy toy(2);
  toy.schedule.communicators.front().engine = CommEngine::sm;
  toy.schedule.communicators.push_back({"tp", {Coord::dp}, CommEngine::sm, 1, 2});
  CollectiveCost slow{0, 20000, {}, 1}, fast = slow;
  slow.most_bytes_per_s = 2.5e8;
  fast.most_bytes_per_s = 5e8;
  const OpId a = toy.collective("a", slow, {}, 1, 0), b = toy.collective("b", fast, {}, 2, 1);
  const SimResult result = one_step(toy, NetworkKind::simgrid);
  CHECK(row_of(result, a).end == 80 * us);
  CHECK(row_of(result, b).end == 40 * us);
}

TEST_CASE("costs that hold what the communicator does not have are refused", "[sim]") {
  Toy toy = with_channel(9);
  CollectiveCost cost{0, 1000, {}, 1};
  SECTION("more cores than channels") {
    cost.cores = 2;
    toy.collective("all_reduce", cost);
  }
  SECTION("cores of their own to move data") {
    cost.cores = 1;
    cost.movement = {us, 1, DemandClass::memory};
    toy.collective("all_reduce", cost);
  }
  SECTION("compute with more cores than are left for it") {
    cost.cores = 1;
    toy.collective("all_reduce", cost);
    toy.compute("wide", us, {}, 2);
  }
  CHECK_THROWS_AS(one_step(toy), Error);
}

TEST_CASE("channels carry no more than their rate, on both networks", "[sim]") {
  Toy toy(2);
  toy.schedule.communicators.front().engine = CommEngine::sm;
  CollectiveCost cost{5 * us, 20000, {}, 1};
  const auto end = [&](double most_bytes_per_s, NetworkKind network) {
    Toy limited = toy;
    cost.most_bytes_per_s = most_bytes_per_s;
    const OpId op = limited.collective("all_reduce", cost);
    return row_of(one_step(limited, network), op).end;
  };
  CHECK(end(0, NetworkKind::fluid) == 25 * us);
  CHECK(end(2e9, NetworkKind::fluid) == 25 * us);  // the link carries 1e9
  CHECK(end(2.5e8, NetworkKind::fluid) == 85 * us);
  CHECK(end(2.5e8, NetworkKind::simgrid) == 85 * us);
}

TEST_CASE("a device whose cores channels could all take is refused", "[sim]") {
  Toy toy = with_channel(2);
  CollectiveCost cost{5 * us, 20000, {}, 1};
  cost.cores = 1;
  toy.collective("all_reduce", cost);
  CHECK_THROWS_AS(one_step(toy), Error);
}

TEST_CASE("priority decides who of those that wait is next", "[sim]") {
  Toy toy(1);
  toy.costs.cores_per_device = 1;
  const OpId running = toy.compute("running", 10 * us, {}, 1);
  const OpId next = toy.compute("next", 10 * us, {}, 1);
  const OpId first = toy.compute("first", 10 * us, {}, 1, DemandClass::gemm, 1);
  const OpId urgent = toy.compute("urgent", 10 * us, {}, 1, DemandClass::gemm, 2);
  const auto starts = [&] {
    const SimResult result = one_step(toy);
    return std::vector<Picoseconds>{row_of(result, running).start, row_of(result, next).start,
                                    row_of(result, first).start, row_of(result, urgent).start};
  };
  CHECK(starts() == std::vector<Picoseconds>{0, 30 * us, 10 * us, 20 * us});
  toy.schedule.lanes[2].priority = kHighPriority;
  CHECK(starts() == std::vector<Picoseconds>{0, 30 * us, 20 * us, 10 * us});
  toy.schedule.lanes[0].priority = -2;  // no help for a lane that asks when the core has just been granted to another
  CHECK(starts() == std::vector<Picoseconds>{0, 20 * us, 30 * us, 10 * us});
}

}  // namespace stretto::sim
