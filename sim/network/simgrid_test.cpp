#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "base/module.hpp"
#include "sim/engine.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

constexpr Picoseconds kMs = 1000 * us;

SimResult run(const Toy& toy, NetworkKind network, int max_steps = 1, double backbone_GBps = 0) {
  SimOptions options;
  options.network = network;
  options.max_steps = max_steps;
  options.fabric.backbone_GBps = backbone_GBps;
  return simulate(toy.schedule, toy.costs, options);
}

Picoseconds end_of(const SimResult& result, OpId op) {
  for (const TimelineRow& row : result.timeline.rows)
    if (row.op == op) return row.end;
  FAIL("no row for operation " << op);
  return 0;
}

// Hand-calculated times are exact to the picosecond to which SimGrid's clock, in seconds, is rounded.
void check_exact(Picoseconds time, Picoseconds expected) { CHECK(std::abs(time - expected) <= 1); }

// Buckets that become ready at uneven times, with movement on cores.
Toy buckets(std::int64_t dp, std::int64_t ranks_per_device, int count) {
  Toy toy(dp, ranks_per_device);
  toy.costs.link_bytes_per_s = 1.7e9;
  toy.costs.cores_per_device = 2;
  toy.costs.wake = 3 * us;
  toy.costs.op_overhead = us / 3;
  toy.costs.timer_overshoot = 5 * us;
  toy.costs.slowdown[0][2] = toy.costs.slowdown[2][0] = 0.13;
  for (int b = 0; b < count; ++b) {
    const OpId wgrad = toy.compute("wgrad" + std::to_string(b), (b * 29 % 13 + 1) * 41 * us + b, {}, 1);
    toy.collective("reduce" + std::to_string(b),
                   {7 * us, 300'001 + 70'003 * (b * 5 % 7), {(b % 3) * 60 * us, 1, DemandClass::memory}, 1 + b % 2},
                   {after(wgrad)});
  }
  return toy;
}

// rank = dp · 2 + tp, communicators "dp" (0, lane dp) and "tp" (1, lane dp2).
Toy two_axes(std::int64_t dp) {
  Toy toy(dp);
  toy.schedule.mesh = Mesh({{Coord::dp, dp}, {Coord::tp, 2}});
  toy.schedule.communicators.push_back({"tp", {Coord::tp}, CommEngine::nic, 1, 2});
  return toy;
}

}  // namespace

TEST_CASE("simgrid and closed form agree where no flows meet", "[sim][simgrid]") {
  struct Case {
    std::int64_t dp, ranks_per_device;
    bool folded;
  };
  for (const Case& c : {Case{2, 1, true}, Case{4, 4, true}, Case{8, 2, true}, Case{16384, 1, true}, Case{2, 1, false},
                        Case{6, 3, false}, Case{64, 1, false}}) {
    CAPTURE(c.dp, c.ranks_per_device, c.folded);
    Toy toy = buckets(c.dp, c.ranks_per_device, 12);
    if (!c.folded) toy.forbid_folding();
    const SimResult fluid = run(toy, NetworkKind::fluid, 4), grid = run(toy, NetworkKind::simgrid, 4);
    CHECK(static_cast<std::int64_t>(grid.programs.size()) == (c.folded ? c.ranks_per_device : c.dp));
    CHECK(static_cast<double>(grid.step) == Approx(static_cast<double>(fluid.step)).epsilon(1e-5));
    CHECK(grid.steady == fluid.steady);
    CHECK(grid.operations == fluid.operations);
    REQUIRE(grid.timeline.rows.size() == fluid.timeline.rows.size());
    for (std::size_t i = 0; i < grid.timeline.rows.size(); ++i) {
      const TimelineRow &g = grid.timeline.rows[i], &f = fluid.timeline.rows[i];
      CHECK(g.rank == f.rank);
      CHECK(g.op == f.op);
      CHECK(static_cast<double>(g.end) == Approx(static_cast<double>(f.end)).epsilon(1e-5));
    }
  }
}

TEST_CASE("a module is loaded from its first use on", "[sim][simgrid]") {
  REQUIRE_THROWS(load_module("libstretto_simgrid.so", "no such symbol"));
  CHECK(is_module_loaded("libstretto_simgrid.so"));
  CHECK_FALSE(is_module_loaded("libstretto_nothing.so"));
}

TEST_CASE("two communicators on two lanes share the links that they meet on", "[sim][simgrid]") {
  for (const bool folded : {true, false}) {
    CAPTURE(folded);
    Toy toy(4);
    toy.schedule.communicators.push_back(toy.schedule.communicators.front());
    const OpId a = toy.collective("a", {0, 1'000'000, {}, 1}, {}, 1, 0);
    const OpId b = toy.collective("b", {0, 500'000, {}, 1}, {}, 2, 1);
    if (!folded) toy.forbid_folding();
    const SimResult fluid = run(toy, NetworkKind::fluid), grid = run(toy, NetworkKind::simgrid);
    CHECK(end_of(fluid, a) == 1 * kMs);
    CHECK(end_of(fluid, b) == kMs / 2);
    // Each has half of the link until b is done; then a has the link alone for its last half megabyte.
    check_exact(end_of(grid, b), 1 * kMs);
    check_exact(end_of(grid, a), 1500 * us);
  }
}

TEST_CASE("latency is paid before the flow, while others have the link to themselves", "[sim][simgrid]") {
  Toy toy(2);
  toy.schedule.communicators.push_back(toy.schedule.communicators.front());
  const OpId a = toy.collective("a", {0, 1'000'000, {}, 1}, {}, 1, 0);
  const OpId b = toy.collective("b", {400 * us, 1'000'000, {}, 1}, {}, 2, 1);
  const SimResult grid = run(toy, NetworkKind::simgrid);
  // a: 0.4 MB alone, 0.6 MB at half rate; b: 0.6 MB by then, 0.4 MB alone.
  check_exact(end_of(grid, a), 1600 * us);
  check_exact(end_of(grid, b), 2000 * us);
}

TEST_CASE("ends a quarter of a nanosecond apart stay apart", "[sim][simgrid]") {
  Toy toy(2);
  toy.costs.link_bytes_per_s = 4e9;
  toy.schedule.communicators.push_back(toy.schedule.communicators.front());
  const OpId a = toy.collective("a", {0, 1'000'000, {}, 1}, {}, 1, 0);
  const OpId b = toy.collective("b", {250, 1'000'000, {}, 1}, {}, 2, 1);
  const SimResult grid = run(toy, NetworkKind::simgrid);
  // a: 1 byte alone, 999,999 at half rate; b: 999,999 by then, 1 byte alone.
  check_exact(end_of(grid, a), 499'999'750);
  check_exact(end_of(grid, b), 500'000'000);
}

TEST_CASE("rings along two axes meet on the links of each rank, folded or not", "[sim][simgrid]") {
  for (const bool folded : {true, false}) {
    CAPTURE(folded);
    Toy toy = two_axes(3);
    const OpId a = toy.collective("a", {0, 900'000, {}, 1}, {}, 1, 0);
    const OpId b = toy.collective("b", {0, 600'000, {}, 1}, {}, 2, 1);
    const Folding folding = folded ? fold_ranks(toy.schedule) : Folding(toy.schedule.mesh);
    SimOptions options;
    options.network = NetworkKind::simgrid;
    options.max_steps = 1;
    const SimResult grid = simulate(toy.schedule, bind_step(toy.schedule, folding), toy.costs, options);
    CHECK(grid.programs.size() == (folded ? 1 : 6));
    check_exact(end_of(grid, b), 1200 * us);
    check_exact(end_of(grid, a), 1500 * us);
  }
}

TEST_CASE("a backbone is shared by the flows of all ranks, folded away or not", "[sim][simgrid]") {
  for (const bool folded : {true, false}) {
    CAPTURE(folded);
    Toy toy(4);
    const OpId a = toy.collective("a", {100 * us, 1'000'000, {}, 1});
    if (!folded) toy.forbid_folding();
    // Four flows on 2 GB/s: 0.5 GB/s each. On 8 GB/s the links of 1 GB/s are narrower.
    check_exact(end_of(run(toy, NetworkKind::simgrid, 1, 2.0), a), 2100 * us);
    check_exact(end_of(run(toy, NetworkKind::simgrid, 1, 8.0), a), 1100 * us);
  }
  // A tensor-parallel pair is simulated for one dp coordinate of four, but all four pairs cross the backbone.
  Toy pairs = two_axes(4);
  const OpId b = pairs.collective("b", {0, 1'000'000, {}, 1}, {}, 2, 1);
  const SimResult grid = run(pairs, NetworkKind::simgrid, 1, 2.0);
  CHECK(grid.programs.size() == 1);
  check_exact(end_of(grid, b), 4 * kMs);
}

TEST_CASE("a backbone for too many ranks is refused", "[sim][simgrid]") {
  Toy toy(16384);
  toy.collective("a", {0, 1'000'000, {}, 1});
  CHECK_THROWS_WITH(run(toy, NetworkKind::simgrid, 1, 2.0), Catch::Contains("at most 4096"));
}

TEST_CASE("simgrid results repeat, and its errors arrive", "[sim][simgrid]") {
  const Toy toy = buckets(4, 4, 8);
  const SimResult one = run(toy, NetworkKind::simgrid, 5), two = run(toy, NetworkKind::simgrid, 5);
  CHECK(one.step == two.step);
  CHECK(one.timeline.step_begin == two.timeline.step_begin);
  REQUIRE(one.timeline.rows.size() == two.timeline.rows.size());
  for (std::size_t i = 0; i < one.timeline.rows.size(); ++i)
    CHECK(one.timeline.rows[i].end == two.timeline.rows[i].end);

  Toy stuck(2);
  const OpId x = stuck.compute("x", us);
  const OpId r = stuck.collective("r", {us, 1000, {}, 1}, {after(x)});
  stuck.schedule.programs[0].order[x].waits = {after(r)};
  CHECK_THROWS_WITH(run(stuck, NetworkKind::simgrid), Catch::Contains("waits for r mb 0 of step 0 on lane dp"));
}

}  // namespace stretto::sim
