#include "sim/engine.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "sim/core.hpp"
#include "sim/network/fluid.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

constexpr Picoseconds ms = 1000 * us;

struct Times {
  Picoseconds ready, start, transfer, end;
  bool operator==(const Times&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Times& t) {
  return out << "ready " << t.ready << " start " << t.start << " transfer " << t.transfer << " end " << t.end;
}

Times times_of(const SimResult& result, OpId op, std::int32_t rank = 0) {
  const TimelineRow row = row_of(result, op, rank);
  return {row.ready, row.start, row.transfer, row.end};
}

std::string message_of(const Toy& toy) {
  try {
    one_step(toy);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::runtime);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a chain pays the overhead between its operations, steps included", "[sim]") {
  Toy toy;
  toy.costs.op_overhead = 2 * us;
  const OpId a = toy.compute("a", 10 * us), b = toy.compute("b", 20 * us), c = toy.compute("c", 30 * us);
  const SimResult once = one_step(toy);
  CHECK(times_of(once, a) == Times{0, 0, 0, 10 * us});
  CHECK(times_of(once, b) == Times{12 * us, 12 * us, 12 * us, 32 * us});
  CHECK(times_of(once, c) == Times{34 * us, 34 * us, 34 * us, 64 * us});
  CHECK(once.timeline.step_begin == 0);
  CHECK(once.step == 64 * us);
  CHECK_FALSE(once.steady);

  const SimResult steady = simulate(toy.schedule, toy.costs);
  CHECK(steady.steady);
  CHECK(steady.step == 66 * us);
  CHECK(steady.operations == 6);
  CHECK(steady.timeline.step_begin == 64 * us);
  CHECK(times_of(steady, a).ready == (64 + 2) * us);
  REQUIRE(steady.timeline.rows.size() == 3);
}

TEST_CASE("finish-start and start-start waits across lanes", "[sim]") {
  Toy toy;
  toy.costs.wake = 3 * us;
  const OpId a = toy.compute("a", 10 * us);
  const OpId b = toy.compute("b", 20 * us);
  const OpId x = toy.compute("x", 5 * us, {after(a)}, 0, DemandClass::memory, 1);
  const OpId y = toy.compute("y", 5 * us, {after_start(b)}, 0, DemandClass::memory, 1);
  const OpId z = toy.compute("z", 1 * us, {after(y), after(x)}, 0, DemandClass::memory, 2);
  const SimResult result = one_step(toy);
  CHECK(times_of(result, b).start == 10 * us);
  // x sleeps until a ends and wakes up; y finds b started and does not sleep.
  CHECK(times_of(result, x) == Times{13 * us, 13 * us, 13 * us, 18 * us});
  CHECK(times_of(result, y) == Times{18 * us, 18 * us, 18 * us, 23 * us});
  CHECK(times_of(result, z) == Times{26 * us, 26 * us, 26 * us, 27 * us});
}

TEST_CASE("a start that lies ahead is waited for, and a tie needs no sleep", "[sim]") {
  Toy toy;
  toy.costs.wake = 3 * us;
  toy.costs.op_overhead = 4 * us;
  const OpId a = toy.compute("a", 10 * us);
  const OpId b = toy.compute("b", 20 * us);  // starts at 14
  const OpId x = toy.compute("x", 2 * us, {after_start(b)}, 0, DemandClass::memory, 1);
  const OpId y = toy.compute("y", 10 * us, {}, 0, DemandClass::memory, 2);
  const OpId z = toy.compute("z", 1 * us, {after_start(b)}, 0, DemandClass::memory, 2);  // reached at 14
  const SimResult result = one_step(toy);
  CHECK(times_of(result, a).end == 10 * us);
  CHECK(times_of(result, x).ready == 17 * us);
  CHECK(times_of(result, y).end == 10 * us);
  CHECK(times_of(result, z).ready == 14 * us);
}

TEST_CASE("a start that was settled earlier but lies ahead is waited for", "[sim]") {
  Toy toy;
  toy.costs.wake = 3 * us;
  toy.costs.op_overhead = 4 * us;
  toy.compute("a", 10 * us);
  const OpId b = toy.compute("b", 20 * us);  // settled at 10 to start at 14
  const OpId q = toy.compute("q", 12 * us, {}, 0, DemandClass::memory, 1);
  const OpId z = toy.compute("z", 1 * us, {after(q), after_start(b)}, 0, DemandClass::memory, 2);
  CHECK(times_of(one_step(toy), z).ready == 17 * us);
}

TEST_CASE("a wait on the step before, with lanes that run on", "[sim]") {
  // x of step s may run once b of step s-1 has ended: the lanes overlap across steps.
  Toy toy;
  const OpId a = toy.compute("a", 3 * us), b = toy.compute("b", 7 * us);
  const OpId x = toy.compute("x", 4 * us, {after(b, 1)}, 0, DemandClass::memory, 1);
  const OpId y = toy.compute("y", 4 * us, {after(a, 1)}, 0, DemandClass::memory, 2);
  SimOptions options;
  options.max_steps = 4;
  const SimResult result = simulate(toy.schedule, toy.costs, options);
  CHECK(result.steady);
  CHECK(result.step == 10 * us);
  // step 2: a and b run 20..30; x waits for b of step 1, which ends at 20.
  CHECK(times_of(result, a) == Times{20 * us, 20 * us, 20 * us, 23 * us});
  CHECK(times_of(result, b).end == 30 * us);
  CHECK(times_of(result, x) == Times{20 * us, 20 * us, 20 * us, 24 * us});
  CHECK(times_of(result, y) == Times{13 * us, 13 * us, 13 * us, 17 * us});
}

TEST_CASE("cores are handed out first come, first served, and queueing costs a wake-up", "[sim]") {
  // Three ranks on two cores.
  Toy toy(3, 3);
  toy.costs.cores_per_device = 2;
  toy.costs.wake = 1 * us;
  toy.costs.op_overhead = 2 * us;
  const OpId a = toy.compute("a", 10 * us, {}, 1), b = toy.compute("b", 10 * us, {}, 1);
  const SimResult result = one_step(toy);
  CHECK(times_of(result, a, 0) == Times{0, 0, 0, 10 * us});
  CHECK(times_of(result, a, 1) == Times{0, 0, 0, 10 * us});
  // Rank 2 asked last (ties are broken by rank), gets a core at 10, and wakes up.
  CHECK(times_of(result, a, 2) == Times{0, 11 * us, 11 * us, 21 * us});
  // At 12 ranks 0 and 1 ask again: one core is free; rank 1 gets the core that rank 2 releases at 21.
  CHECK(times_of(result, b, 0) == Times{12 * us, 12 * us, 12 * us, 22 * us});
  CHECK(times_of(result, b, 1) == Times{12 * us, 22 * us, 22 * us, 32 * us});
  CHECK(times_of(result, b, 2) == Times{23 * us, 23 * us, 23 * us, 33 * us});
}

TEST_CASE("a wide operation at the head of the queue is not overtaken", "[sim]") {
  Toy toy(1, 1);
  toy.costs.cores_per_device = 2;
  const OpId narrow = toy.compute("narrow", 10 * us, {}, 1);
  const OpId wait = toy.compute("delay", 1 * us, {}, 0, DemandClass::memory, 1);
  const OpId wide = toy.compute("wide", 5 * us, {}, 2, DemandClass::memory, 1);
  const OpId delay = toy.compute("delay2", 2 * us, {}, 0, DemandClass::memory, 2);
  const OpId late = toy.compute("late", 1 * us, {}, 1, DemandClass::memory, 2);
  const SimResult result = one_step(toy);
  CHECK(times_of(result, narrow).end == 10 * us);
  CHECK(times_of(result, wait).end == 1 * us);
  CHECK(times_of(result, delay).end == 2 * us);
  CHECK(times_of(result, wide) == Times{1 * us, 10 * us, 10 * us, 15 * us});
  CHECK(times_of(result, late) == Times{2 * us, 15 * us, 15 * us, 16 * us});
}

TEST_CASE("operations on one device slow each other while they overlap", "[sim]") {
  Toy toy;
  toy.costs.cores_per_device = 2;
  toy.costs.slowdown[0][3] = 0.2;  // gemm concurrent with memory
  toy.costs.slowdown[3][0] = 0.2;
  SECTION("all the time") {
    const OpId a = toy.compute("a", ms, {}, 1, DemandClass::gemm);
    const OpId b = toy.compute("b", ms, {}, 1, DemandClass::memory, 1);
    const SimResult result = one_step(toy);
    CHECK(times_of(result, a).end == 1200 * us);
    CHECK(times_of(result, b).end == 1200 * us);
  }
  SECTION("partly") {
    // GEMM of 1 ms, memory work of 0.5 ms from 0.3 ms: 0.3 + 0.6 overlapped (0.5 done) + 0.2 = 1.1 ms.
    const OpId delay = toy.compute("delay", 300 * us, {}, 0, DemandClass::memory, 1);
    const OpId a = toy.compute("a", ms, {}, 1, DemandClass::gemm);
    const OpId b = toy.compute("b", 500 * us, {}, 1, DemandClass::memory, 1);
    const SimResult result = one_step(toy);
    CHECK(times_of(result, delay).end == 300 * us);  // holds no core: neither slows nor is slowed
    CHECK(times_of(result, b) == Times{300 * us, 300 * us, 300 * us, 900 * us});
    CHECK(times_of(result, a).end == 1100 * us);
  }
  SECTION("one way only") {
    toy.costs.slowdown[3][0] = 0;
    const OpId a = toy.compute("a", ms, {}, 1, DemandClass::gemm);
    const OpId b = toy.compute("b", 600 * us, {}, 1, DemandClass::memory, 1);
    const SimResult result = one_step(toy);
    CHECK(times_of(result, b).end == 600 * us);
    CHECK(times_of(result, a).end == 1100 * us);
  }
}

TEST_CASE("slowdown depends on which classes are there, not on how many of each", "[sim]") {
  Toy toy(3, 3);
  toy.costs.cores_per_device = 3;
  toy.costs.slowdown[0][0] = 0.5;
  const OpId a = toy.compute("a", ms, {}, 1, DemandClass::gemm);
  const SimResult result = one_step(toy);
  for (int rank = 0; rank < 3; ++rank) CHECK(times_of(result, a, rank).end == 1500 * us);
}

TEST_CASE("slowdown and queueing together: work starts after the wake-up", "[sim]") {
  Toy toy(3, 3);
  toy.costs.cores_per_device = 2;
  toy.costs.wake = 100 * us;
  toy.costs.slowdown[0][0] = 0.5;
  const OpId a = toy.compute("a", ms, {}, 1, DemandClass::gemm);
  const SimResult result = one_step(toy);
  CHECK(times_of(result, a, 0).end == 1500 * us);
  CHECK(times_of(result, a, 1).end == 1500 * us);
  CHECK(times_of(result, a, 2) == Times{0, 1600 * us, 1600 * us, 2600 * us});
}

TEST_CASE("a collective waits for all members, then for transfer and movement", "[sim]") {
  // Two ranks on a device with one core: rank 1 arrives 10 us after rank 0.
  Toy toy(2, 2);
  toy.costs.cores_per_device = 1;
  toy.costs.wake = 1 * us;
  toy.costs.timer_overshoot = 2 * us;
  const OpId a = toy.compute("a", 10 * us, {}, 1);
  SECTION("transfer longer than the movement") {
    const OpId r = toy.collective("r", {5 * us, 50'000, {}, 1}, {after(a)});
    const SimResult result = one_step(toy);
    // a: 0..10 and, after queueing, 11..21. Both comm lanes sleep for a.
    CHECK(times_of(result, a, 1) == Times{0, 11 * us, 11 * us, 21 * us});
    const Picoseconds end = (22 + 5 + 50 + 2) * us;
    CHECK(times_of(result, r, 0) == Times{11 * us, 11 * us, 22 * us, end});
    CHECK(times_of(result, r, 1) == Times{22 * us, 22 * us, 22 * us, end});
  }
  SECTION("movement longer than the transfer") {
    // Movement of 40 us needs the one core: rank 1 (awake) at 22..62, rank 0 wakes at 23, queues, 63..103 after a
    // wake-up; rank 1 slept for it, so completion is one more wake-up later and the deadline of 27 costs nothing.
    const OpId r = toy.collective("r", {5 * us, 0, {40 * us, 1, DemandClass::memory}, 1}, {after(a)});
    const SimResult result = one_step(toy);
    CHECK(times_of(result, r, 0) == Times{11 * us, 11 * us, 22 * us, 104 * us});
    CHECK(times_of(result, r, 1) == Times{22 * us, 22 * us, 22 * us, 104 * us});
  }
}

TEST_CASE("who slept for a meeting wakes up before it moves data", "[sim]") {
  Toy toy(2, 2);
  toy.costs.cores_per_device = 1;
  toy.costs.wake = 1 * us;
  toy.costs.timer_overshoot = 2 * us;
  const OpId a = toy.compute("a", 10 * us, {}, 1);
  CollectiveCost cost{0, 0, {40 * us, 0, DemandClass::memory}, 1};  // no cores: both move at once
  // Meeting at 22: rank 1 moves 22..62, rank 0 23..63, rank 1 slept for it: 64.
  SECTION("the deadline is long past") { cost.edge_bytes = 30'000; }
  SECTION("the deadline is that of the last movement: nobody sleeps to it") { cost.edge_bytes = 41'000; }
  const OpId r = toy.collective("r", cost, {after(a)});
  const SimResult result = one_step(toy);
  CHECK(times_of(result, r, 0) == Times{11 * us, 11 * us, 22 * us, 64 * us});
  CHECK(times_of(result, r, 1) == Times{22 * us, 22 * us, 22 * us, 64 * us});

  toy.costs.collective[r].edge_bytes = 42'000;  // 64: one more, and both sleep to it
  CHECK(times_of(one_step(toy), r, 0).end == 66 * us);
}

TEST_CASE("phases of movement meet in between", "[sim]") {
  Toy toy(2, 2);
  toy.costs.cores_per_device = 2;
  toy.costs.wake = 1 * us;
  const OpId delay = toy.compute("delay", 10 * us);
  const OpId r = toy.collective("r", {0, 1000, {20 * us, 1, DemandClass::memory}, 2}, {after(delay)});
  const SimResult result = one_step(toy);
  CHECK(times_of(result, delay).end == 10 * us);
  // Both arrive at 11 and need no wake-up at either meeting.
  CHECK(times_of(result, r, 0) == Times{11 * us, 11 * us, 11 * us, 51 * us});

  // With one core for both: 11..31, then 32..52 (queued); meeting at 52; rank 0 slept: 53 it asks, but rank 1 has had
  // the core from 52: 52..72; rank 0: 73..93. Rank 1 slept at the end: 94.
  toy.costs.cores_per_device = 1;
  const SimResult narrow = one_step(toy);
  CHECK(times_of(narrow, r, 0).end == 94 * us);
  CHECK(times_of(narrow, r, 1).end == 94 * us);
}

TEST_CASE("movement slows the compute that it overlaps, only while it lasts", "[sim]") {
  Toy toy(2, 1);
  toy.costs.cores_per_device = 4;
  toy.costs.slowdown[0][3] = 0.25;
  const OpId a = toy.compute("a", ms, {}, 1, DemandClass::gemm);
  // The movement takes 0.4 ms from the start; the transfer lasts 2 ms and slows no one.
  const OpId r = toy.collective("r", {0, 2'000'000, {400 * us, 1, DemandClass::memory}, 1});
  const SimResult result = one_step(toy);
  CHECK(times_of(result, r).end == 2 * ms);
  CHECK(times_of(result, a).end == 400 * us + 680 * us);  // 0.32 ms done in 0.4
}

TEST_CASE("a group of one completes at once", "[sim]") {
  Toy toy(1);
  const OpId a = toy.compute("a", 10 * us);
  const OpId r = toy.collective("r", {5 * us, 1'000'000, {40 * us, 1, DemandClass::memory}, 2}, {after(a)});
  CHECK(times_of(one_step(toy), r) == Times{10 * us, 10 * us, 10 * us, 10 * us});
}

TEST_CASE("buckets follow f_b = max(r_b, f_{b-1}) + c_b exactly", "[sim]") {
  Toy toy(8);
  const std::vector<Picoseconds> backward = {700 * us, 100 * us, 150 * us, 900 * us, 50 * us, 333 * us};
  const std::vector<std::int64_t> bytes = {400'000, 350'000, 300'000, 10'000, 777'777, 200'000};
  const Picoseconds alpha = 12'345'678;
  std::vector<OpId> reduce;
  for (std::size_t b = 0; b < backward.size(); ++b) {
    const OpId wgrad = toy.compute("wgrad" + std::to_string(b), backward[b]);
    reduce.push_back(toy.collective("reduce" + std::to_string(b), {alpha, bytes[b], {}, 1}, {after(wgrad)}));
  }
  const OpId step = toy.compute("optimizer", 10 * us, {after(reduce.back())});
  const SimResult result = one_step(toy);
  Picoseconds released = 0, done = 0;
  for (std::size_t b = 0; b < backward.size(); ++b) {
    released += backward[b];
    done = std::max(released, done) + alpha + bytes[b] * 1000;  // 1 GB/s: 1000 ps a byte
    CHECK(times_of(result, reduce[b]).end == done);
  }
  CHECK(times_of(result, step).start == done);
  CHECK(result.step == done + 10 * us);
}

TEST_CASE("a folded run costs what one rank costs, whatever dp", "[sim]") {
  const auto build = [](std::int64_t dp) {
    Toy toy(dp);
    toy.costs.wake = us;
    for (int b = 0; b < 20; ++b) {
      const OpId wgrad = toy.compute("wgrad" + std::to_string(b), (b % 7 + 1) * 37 * us, {}, 1);
      toy.collective("reduce" + std::to_string(b), {5 * us, 100'000, {10 * us, 1, DemandClass::memory}, 2},
                     {after(wgrad)});
    }
    return toy;
  };
  const Toy small = build(4), large = build(16384);
  const SimResult four = simulate(small.schedule, small.costs), many = simulate(large.schedule, large.costs);
  CHECK(four.step == many.step);
  CHECK(four.operations == many.operations);
  CHECK(many.programs.size() == 1);
  REQUIRE(four.timeline.rows.size() == many.timeline.rows.size());
  for (std::size_t i = 0; i < four.timeline.rows.size(); ++i) {
    CHECK(four.timeline.rows[i].ready == many.timeline.rows[i].ready);
    CHECK(four.timeline.rows[i].end == many.timeline.rows[i].end);
  }

  Toy unfolded = build(4);
  unfolded.forbid_folding();
  const SimResult all = simulate(unfolded.schedule, unfolded.costs);
  CHECK(all.programs.size() == 4);
  CHECK(all.step == four.step);
}

TEST_CASE("equal inputs give equal results, crowded devices included", "[sim]") {
  Toy toy(4, 4);
  toy.costs.cores_per_device = 2;
  toy.costs.wake = 7 * us;
  toy.costs.op_overhead = us;
  toy.costs.slowdown = {
      {{0.07, 0.02, 0.31, 0.05}, {0.11, 0.13, 0.17, 0.03}, {0.41, 0.23, 0.29, 0.19}, {0.37, 0.43, 0.47, 0.53}}};
  for (int i = 0; i < 30; ++i) {
    const OpId a = toy.compute("a" + std::to_string(i), (i * 37 % 11 + 1) * 13 * us, {}, 1,
                               static_cast<DemandClass>(i % kDemandClasses));
    if (i % 3 == 0)
      toy.collective("r" + std::to_string(i), {us, 20'000, {9 * us, 1, DemandClass::memory}, 2}, {after(a)});
  }
  const SimResult one = simulate(toy.schedule, toy.costs), two = simulate(toy.schedule, toy.costs);
  CHECK(one.step == two.step);
  CHECK(one.operations == two.operations);
  REQUIRE(one.timeline.rows.size() == 4 * 40);
  for (std::size_t i = 0; i < one.timeline.rows.size(); ++i) {
    const TimelineRow &a = one.timeline.rows[i], &b = two.timeline.rows[i];
    CHECK(a.op == b.op);
    CHECK(a.end == b.end);
    CHECK(a.ready <= a.start);
    CHECK(a.start <= a.transfer);
    CHECK(a.transfer <= a.end);
    if (i > 0) CHECK((one.timeline.rows[i - 1].rank < a.rank || one.timeline.rows[i - 1].op < a.op));
  }
}

TEST_CASE("a deadlock names who waits for what", "[sim]") {
  Toy toy(2);
  const OpId a = toy.compute("a", us);
  const OpId x = toy.compute("x", us, {}, 0, DemandClass::memory, 1);
  toy.schedule.programs[0].order[a].waits = {after(x)};
  toy.schedule.programs[0].order[x].waits = {after(a)};
  const std::string message = message_of(toy);
  CHECK(message.find("lane compute (a mb 0, step 0) waits for x mb 0 of step 0 on lane dp to finish") !=
        std::string::npos);
  CHECK(message.find("lane dp (x mb 0, step 0) waits for a mb 0") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("members that bring different operations to a meeting are an error", "[sim]") {
  Toy toy(2);
  toy.collective("first", {us, 1000, {}, 1});
  toy.collective("second", {us, 1000, {}, 1});
  toy.forbid_folding();
  std::vector<BoundProgram> programs = {bind(toy.schedule, 0), bind(toy.schedule, 1)};
  std::swap(programs[1].lanes[1][0], programs[1].lanes[1][1]);
  const Partners partners = find_partners(toy.schedule, programs, Folding(toy.schedule.mesh));
  const auto flat = flatten_all(toy.schedule, programs, toy.costs, partners);
  FluidNetwork network(toy.costs.link_bytes_per_s);
  const SimInputs inputs{toy.schedule, toy.costs, programs, flat, partners};
  Core core(inputs, network, 1, {});
  CHECK_THROWS_WITH(core.run(), Catch::Contains("members of communicator dp issue different operations") &&
                                    Catch::Contains("first mb 0") && Catch::Contains("second mb 0"));
}

TEST_CASE("a straggler is simulated, and one rank that stands for all others", "[sim]") {
  Toy toy(16);
  const OpId work = toy.compute("work", 10 * us);
  toy.collective("sum", {us, 1000, {}, 1}, {after(work)});
  const OpId rest = toy.compute("rest", 3 * us);
  OpCosts slow = toy.costs;
  slow.compute[work].alone = 25 * us;
  slow.compute[rest].alone = 4 * us;
  toy.costs.of_rank[11] = slow;
  const SimResult some = simulate(toy.schedule, toy.costs),
                  every = simulate(toy.schedule, bind_step(toy.schedule, Folding(toy.schedule.mesh)), toy.costs);
  REQUIRE(some.programs.size() == 2);
  CHECK(some.step == every.step);
  CHECK(some.step == 29 * us);
  const auto rows_of = [](const SimResult& result, std::int32_t rank) {
    std::vector<std::pair<Picoseconds, Picoseconds>> rows;
    for (const TimelineRow& row : result.timeline.rows)
      if (row.rank == rank) rows.emplace_back(row.start, row.end);
    return rows;
  };
  for (const std::int32_t rank : {0, 11}) CHECK(rows_of(some, rank) == rows_of(every, rank));
  CHECK(rows_of(every, 7) == rows_of(some, 0));
}

TEST_CASE("costs that do not fit are refused", "[sim]") {
  Toy toy;
  toy.costs.cores_per_device = 2;
  toy.compute("wide", us, {}, 3);
  CHECK_THROWS_WITH(one_step(toy), Catch::Contains("wide needs 3 cores, but a device has 2"));
  toy.costs.compute.clear();
  CHECK_THROWS_WITH(one_step(toy), Catch::Contains("costs are given for 0 operations"));
  CHECK_THROWS_AS(one_step(Toy()), Error);
}

TEST_CASE("times that cannot be represented are refused", "[sim]") {
  Toy toy;
  toy.compute("long", kLongestOperation, {}, 0, DemandClass::memory);
  for (int i = 0; i < 40; ++i) toy.compute("longer", kLongestOperation, {}, 0, DemandClass::memory);
  CHECK(one_step(toy).step == 41 * kLongestOperation);
  for (int i = 0; i < 250; ++i) toy.compute("longer", kLongestOperation, {}, 0, DemandClass::memory);
  CHECK_THROWS_WITH(one_step(toy), Catch::Contains("passed 26 days"));
  toy.costs.compute[0].alone += 1;
  CHECK_THROWS_WITH(one_step(toy), Catch::Contains("long takes more than 2.5 hours"));
}

TEST_CASE("no steady period: max_steps are simulated and it says so", "[sim]") {
  // Lane 1 takes longer than lane 0 and nothing couples them: the period is that of lane 1. With a wait two steps back
  // on a slower lane, the first periods differ.
  Toy toy;
  const OpId a = toy.compute("a", 10 * us);
  toy.compute("x", 30 * us, {after(a)}, 0, DemandClass::memory, 1);
  const SimResult result = simulate(toy.schedule, toy.costs);
  CHECK(result.steady);
  CHECK(result.step == 30 * us);
  SimOptions two;
  two.max_steps = 2;
  const SimResult early = simulate(toy.schedule, toy.costs, two);
  CHECK_FALSE(early.steady);
  CHECK(early.step == 30 * us);
  CHECK(early.timeline.rows.size() == 2);
}

}  // namespace stretto::sim
