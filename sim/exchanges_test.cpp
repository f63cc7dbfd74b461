// Tests of sends and receives on hand-made schedules: the start of a message, the costs of its two ends, groups.
#include <catch2/catch.hpp>

#include "sim/engine.hpp"
#include "tests/toy_schedule.hpp"
#include "tests/training.hpp"

namespace stretto::sim {
namespace {

// Two stages with a program each. Lanes "compute" (0), "pp" (1), "pp2" (2); a wake-up takes 1 us, a timer 2 us too
// long, and 1000 bytes cross the link in 1 us.
struct TwoStages {
  Schedule schedule;
  Costs costs;

  TwoStages() {
    schedule.name = "two stages";
    schedule.mesh = Mesh({{Coord::pp, 2}});
    schedule.lanes = {
        {"compute", LaneKind::compute, 0}, {"pp", LaneKind::communication, 0}, {"pp2", LaneKind::communication, 0}};
    schedule.communicators = {{"pp", {Coord::pp}, CommEngine::nic, 1, 2}};
    schedule.programs = {{"stage 0", {}}, {"stage 1", {}}};
    costs.link_bytes_per_s = 1e9;
    costs.wake = 1 * us;
    costs.timer_overshoot = 2 * us;
  }

  OpId compute(std::size_t stage, const std::string& name, Picoseconds alone, std::vector<Edge> waits = {}) {
    const OpId id = add(stage, name, Fill{}, 0, std::move(waits));
    costs.compute[id].alone = alone;
    return id;
  }
  OpId send(std::size_t stage, const std::string& name, std::vector<Edge> waits = {}, LaneId lane = 1) {
    return add(stage, name, PointToPoint{true, 0, 1, 1}, lane, std::move(waits));
  }
  // The receiver's costs are those of the message.
  OpId receive(std::size_t stage, const std::string& name, const CollectiveCost& cost, std::vector<Edge> waits = {},
               LaneId lane = 1) {
    const OpId id = add(stage, name, PointToPoint{false, 0, 1, 1}, lane, std::move(waits));
    costs.collective[id] = cost;
    return id;
  }
  // Joins the operation to the one that was added before it.
  OpId joined(OpId id) {
    for (Program& program : schedule.programs)
      for (Call& call : program.order)
        if (call.block == id) call.joined = true;
    return id;
  }

 private:
  OpId add(std::size_t stage, const std::string& name, const Work& work, LaneId lane, std::vector<Edge> waits) {
    const auto id = static_cast<OpId>(schedule.operations.size());
    schedule.operations.push_back({name, work, lane, Phase::forward, {}});
    costs.compute.emplace_back();
    costs.collective.emplace_back();
    schedule.blocks.push_back({name, {id}});
    schedule.programs[stage].order.push_back({id, 0, 0, 0, 0, 1, std::move(waits)});
    return id;
  }
};

struct Moved {
  Picoseconds ready, transfer, end;
  bool operator==(const Moved&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Moved& t) {
  return out << "ready " << t.ready << " transfer " << t.transfer << " end " << t.end;
}

SimResult one_step(const TwoStages& two) {
  SimOptions options;
  options.max_steps = 1;
  return simulate(two.schedule, two.costs, options);
}

Moved moved_of(const SimResult& result, OpId op) {
  for (const TimelineRow& row : result.timeline.rows)
    if (result.programs[static_cast<std::size_t>(row.rank)].ops[row.op].op == op)
      return {row.ready, row.transfer, row.end};
  FAIL("no row for operation " << op);
  return {};
}

Picoseconds waited_of(const SimResult& result, OpId op) {
  for (const TimelineRow& row : result.timeline.rows)
    if (result.programs[static_cast<std::size_t>(row.rank)].ops[row.op].op == op) return row.waited;
  FAIL("no row for operation " << op);
  return 0;
}

}  // namespace

TEST_CASE("a message begins when both ends are there, and ends for both when its bytes are", "[sim]") {
  TwoStages two;
  SECTION("the sender comes last") {
    const OpId a = two.compute(0, "a", 10 * us);
    const OpId s = two.send(0, "s", {after(a)}), r = two.receive(1, "r", {5 * us, 50'000, {}, 1});
    const SimResult result = one_step(two);
    // a ends at 10, the sending lane wakes up; the bytes arrive at 66, and both ends sleep to that time.
    CHECK(moved_of(result, s) == Moved{11 * us, 11 * us, 68 * us});
    CHECK(moved_of(result, r) == Moved{0, 11 * us, 68 * us});
  }
  SECTION("the receiver comes last: its buffer was not free") {
    const OpId a = two.compute(1, "a", 10 * us);
    const OpId s = two.send(0, "s"), r = two.receive(1, "r", {5 * us, 50'000, {}, 1}, {after(a)});
    const SimResult result = one_step(two);
    CHECK(moved_of(result, s) == Moved{0, 11 * us, 68 * us});
    CHECK(moved_of(result, r) == Moved{11 * us, 11 * us, 68 * us});
  }
  SECTION("without bytes there is the latency alone") {
    const OpId s = two.send(0, "s"), r = two.receive(1, "r", {5 * us, 0, {}, 1});
    const SimResult result = one_step(two);
    CHECK(moved_of(result, s) == Moved{0, 0, 7 * us});
    CHECK(moved_of(result, r) == Moved{0, 0, 7 * us});
  }
}

TEST_CASE("the receiver moves the bytes: the sender sleeps until it has them", "[sim]") {
  TwoStages two;
  const CollectiveCost cost{5 * us, 50'000, {100 * us, 0, DemandClass::memory}, 1};
  SECTION("a receiver that was there first wakes up, then moves") {
    const OpId a = two.compute(0, "a", 10 * us);
    const OpId s = two.send(0, "s", {after(a)}), r = two.receive(1, "r", cost);
    const SimResult result = one_step(two);
    CHECK(moved_of(result, r) == Moved{0, 11 * us, 112 * us});
    CHECK(moved_of(result, s) == Moved{11 * us, 11 * us, 113 * us});
  }
  SECTION("a receiver that comes last is awake") {
    const OpId a = two.compute(1, "a", 10 * us);
    const OpId s = two.send(0, "s"), r = two.receive(1, "r", cost, {after(a)});
    const SimResult result = one_step(two);
    CHECK(moved_of(result, r) == Moved{11 * us, 11 * us, 111 * us});
    CHECK(moved_of(result, s) == Moved{0, 11 * us, 112 * us});
  }
}

TEST_CASE("messages of a group begin by themselves and end together", "[sim]") {
  TwoStages two;
  const CollectiveCost cost{0, 50'000, {}, 1};
  const OpId a = two.compute(1, "a", 100 * us);
  // Stage 0 sends one message and receives one; stage 1 receives at once but sends only after a.
  const OpId s0 = two.send(0, "s0"), r0 = two.joined(two.receive(0, "r0", cost));
  const OpId r1 = two.receive(1, "r1", cost), s1 = two.send(1, "s1", {after(a)}, 2);
  const SimResult result = one_step(two);
  CHECK(moved_of(result, r1) == Moved{0, 0, 52 * us});
  CHECK(moved_of(result, s1) == Moved{101 * us, 101 * us, 153 * us});
  CHECK(moved_of(result, s0) == Moved{0, 0, 153 * us});
  CHECK(moved_of(result, r0) == Moved{0, 101 * us, 153 * us});
  // s0 alone would have ended with r1; the other messages waited only for their peers.
  CHECK(waited_of(result, s0) == 101 * us);
  for (const OpId op : {r0, r1, s1}) CHECK(waited_of(result, op) == 0);
}

TEST_CASE("a receive that follows one with a late sender waits for that one", "[sim]") {
  TwoStages two;
  const CollectiveCost cost{5 * us, 0, {20 * us, 0, DemandClass::memory}, 1};
  const OpId a = two.compute(0, "a", 100 * us);
  const OpId late = two.send(0, "late", {after(a)}, 2), early = two.send(0, "early");
  // Both messages use one link, so on two lanes the first posted message is the first received one.
  const OpId r = two.receive(1, "r", cost), q = two.joined(two.receive(1, "q", cost));
  const SimResult result = one_step(two);
  CHECK(moved_of(result, early) == Moved{0, 0, 21 * us});
  CHECK(moved_of(result, late).transfer == 101 * us);
  // The first moves from 0 to 20, the second wakes up and moves from 102 to 122.
  CHECK(moved_of(result, r) == Moved{0, 0, 122 * us});
  CHECK(moved_of(result, q) == Moved{0, 101 * us, 122 * us});
  CHECK(waited_of(result, r) == 102 * us);
  CHECK(waited_of(result, q) == 0);
}

TEST_CASE("a group starts when the waits of all of it are met", "[sim]") {
  TwoStages two;
  const OpId a = two.compute(0, "a", 10 * us);
  const OpId s = two.send(0, "s"), t = two.joined(two.send(0, "t", {after(a)}));
  const OpId r = two.receive(1, "r", {0, 3'000, {}, 1}), q = two.receive(1, "q", {0, 3'000, {}, 1});
  const SimResult result = one_step(two);
  CHECK(moved_of(result, s) == Moved{11 * us, 11 * us, moved_of(result, t).end});
  // The second message is not in a group with the first: it is posted when the first is over.
  CHECK(moved_of(result, r) == Moved{0, 11 * us, 16 * us});
  CHECK(moved_of(result, q) == Moved{16 * us, 16 * us, 21 * us});
  CHECK(moved_of(result, t).end == 21 * us);
}

TEST_CASE("several receives of a group whose senders are there already", "[sim]") {
  // One message is served after the other, with and without data to move.
  for (const Picoseconds moves : {Picoseconds{0}, 3 * us}) {
    TwoStages two;
    const CollectiveCost cost{5 * us, 0, {moves, 0, DemandClass::memory}, 1};
    const OpId a = two.compute(1, "a", 10 * us);
    const OpId s = two.send(0, "s"), t = two.joined(two.send(0, "t"));
    const OpId r = two.receive(1, "r", cost, {after(a)}), q = two.joined(two.receive(1, "q", cost));
    const SimResult result = one_step(two);
    // Both begin at 11; the wire ends at 16, the movement of both at 11 + 2 · moves.
    const Picoseconds end = moves == 0 ? 18 * us : 17 * us;
    CHECK(moved_of(result, r) == Moved{11 * us, 11 * us, end});
    CHECK(moved_of(result, q) == Moved{11 * us, 11 * us, end});
    CHECK(moved_of(result, s) == moved_of(result, t));
    CHECK(moved_of(result, s).end == 18 * us);
  }
}

TEST_CASE("the n-th that is sent is the n-th that is received, on whatever lanes", "[sim]") {
  TwoStages two;
  const OpId s = two.send(0, "s"), t = two.send(0, "t");
  const OpId r = two.receive(1, "r", {0, 10'000, {}, 1}), q = two.receive(1, "q", {0, 20'000, {}, 1}, {}, 2);
  const SimResult result = one_step(two);
  CHECK(moved_of(result, s).end == 12 * us);
  CHECK(moved_of(result, r).end == 12 * us);
  CHECK(moved_of(result, t) == Moved{12 * us, 12 * us, 34 * us});
  CHECK(moved_of(result, q).end == 34 * us);
}

TEST_CASE("a receive that its own send wakes sets off once", "[sim][simgrid]") {
  Toy toy(4);
  toy.schedule.lanes.push_back({"receive", LaneKind::communication, 0});
  const OpId made = toy.compute("make", 1 * us);
  const OpId sent = toy.message("send", true, {}, 2);
  const OpId received = toy.message("receive", false, {1 * us, 1000, {}}, 3);
  toy.schedule.programs[0].order[1].waits = {after(made)};
  toy.schedule.programs[0].order[2].waits = {after_start(sent)};
  for (const NetworkKind network : {NetworkKind::fluid, NetworkKind::simgrid}) {
    SimOptions options;
    options.max_steps = 1;
    options.network = network;
    const SimResult result = simulate(toy.schedule, toy.costs, options);
    for (const OpId op : {sent, received})
      for (const TimelineRow& row : result.timeline.rows)
        if (row.op == op) CHECK(row.end == 3 * us);  // one flow, with the link to itself
  }
}

TEST_CASE("simgrid agrees with closed form about messages where no flows meet", "[sim][simgrid]") {
  // With two stages a rank sends forward or backward, never both: the flows of a link do not overlap.
  for (const bool overlap : {false, true})
    for (const std::int64_t micro_batches : {1, 4}) {
      Scenario scenario = testing::layout_scenario({1, 1, false, 2}, "plain", false, "fp32", 1, micro_batches);
      scenario.cluster.ranks_per_device = 1;
      scenario.overlap.overlap_p2p_comm = overlap;
      const Schedule schedule = build_schedule(scenario);
      Costs costs;
      costs.link_bytes_per_s = 1.7e9;
      costs.wake = 1 * us;
      for (OpId op = 0; op < schedule.operations.size(); ++op) {
        costs.compute.push_back({(op % 7 + 1) * us, 0, DemandClass::gemm});
        costs.collective.push_back({3 * us, 10'000 + op, {}, 1});
      }
      SimOptions options;
      const SimResult fluid = simulate(schedule, costs, options);
      options.network = NetworkKind::simgrid;
      const SimResult grid = simulate(schedule, costs, options);
      INFO("overlap " << overlap << ", " << micro_batches << " micro-batches");
      CHECK(double(grid.step) == Approx(double(fluid.step)).epsilon(1e-5));
      REQUIRE(grid.timeline.rows.size() == fluid.timeline.rows.size());
      for (std::size_t i = 0; i < grid.timeline.rows.size(); ++i)
        CHECK(double(grid.timeline.rows[i].end) == Approx(double(fluid.timeline.rows[i].end)).epsilon(1e-5));
    }
}

}  // namespace stretto::sim
