#include <catch2/catch.hpp>
#include <ctime>
#include <random>

#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// Experts' axes over the ranks of the others; which coordinates stand for them does not matter here.
constexpr Coord kEdp = Coord::dp_instance, kEp = Coord::cp_exchange, kEtp = Coord::cp;

struct Layout {
  std::int64_t pp = 1, dp = 1, tp = 1, ep = 1, etp = 1, per_device = 1;
  std::int64_t ranks() const { return pp * dp * tp; }
  std::int64_t edp() const { return dp * tp / ep / etp; }
};

// Layers of attention and experts on every stage, messages from stage to stage, and gradients at the end. Costs are
// random; compute needs cores of a device that has three of them for every four ranks.
Toy experts(const Layout& of, std::int64_t layers, std::int64_t micro_batches, std::mt19937_64& random) {
  enum Lanes : LaneId { compute, pp, tp, ep, dp, edp };
  Toy toy;
  Schedule& schedule = toy.schedule;
  schedule.mesh = Mesh({{Coord::pp, of.pp}, {Coord::dp, of.dp}, {Coord::tp, of.tp}});
  schedule.mesh.add_decomposition({{Coord::pp, of.pp}, {kEdp, of.edp()}, {kEp, of.ep}, {kEtp, of.etp}});
  schedule.placement.ranks_per_device = of.per_device;
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  schedule.communicators.clear();
  for (const auto& [name, axis] :
       {std::pair{"pp", Coord::pp}, {"tp", Coord::tp}, {"ep", kEp}, {"dp", Coord::dp}, {"edp", kEdp}}) {
    schedule.lanes.push_back({name, LaneKind::communication, 0});
    schedule.communicators.push_back({name, {axis}, CommEngine::nic, 1, schedule.mesh.size(axis)});
  }
  toy.costs.cores_per_device = static_cast<int>((3 * of.per_device + 3) / 4);
  toy.costs.wake = 3;
  toy.costs.slowdown[0][0] = 0.1;
  const auto time = [&] {
    return static_cast<Picoseconds>(random() % 9 + 1) * us + static_cast<Picoseconds>(random() % 9);
  };
  const auto moved = [&] {
    return CollectiveCost{
        time() / 4, static_cast<std::int64_t>(random() % 5000), {time() / 3, 0, DemandClass::memory}, 1};
  };
  const auto on = [&](const char* name, LaneId lane) {
    return lane == compute ? toy.compute(name, time(), {}, 1) : toy.collective(name, moved(), {}, lane, lane - 1);
  };
  schedule.blocks.clear();
  const std::vector<OpId> ops = {on("attention", compute), on("sum", tp),      on("dispatch", ep),
                                 on("fc1", compute),       on("fc2", compute), on("combine", ep)};
  const OpId receive = toy.message("receive", false, moved(), pp), send = toy.message("send", true, moved(), pp);
  const OpId sum = on("dp sum", dp), expert_sum = on("edp sum", edp), step = on("step", compute);
  schedule.blocks = {{"layer",
                      ops,
                      {{1, EdgeKind::finish_start, 0},
                       {2, EdgeKind::finish_start, 1},
                       {3, EdgeKind::finish_start, 2},
                       {4, EdgeKind::finish_start, 3},
                       {5, EdgeKind::finish_start, 4}}},
                     {"receive", {receive}},
                     {"send", {send}},
                     {"sum", {sum}},
                     {"experts' sum", {expert_sum}},
                     {"step", {step}}};
  schedule.programs.assign(static_cast<std::size_t>(of.pp), {});
  for (std::int64_t stage = 0; stage < of.pp; ++stage) {
    std::vector<Call>& order = schedule.programs[static_cast<std::size_t>(stage)].order;
    const auto call = [&](BlockId block, std::int64_t layer, std::int64_t micro_batch) {
      Call& added = order.emplace_back();
      added.block = block;
      added.layer = layer;
      added.micro_batch = micro_batch;
      added.count = static_cast<std::uint32_t>(schedule.blocks[block].ops.size());
      added.sequence = 1;
    };
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      if (stage > 0) call(1, 0, m);
      for (std::int64_t layer = 0; layer < layers; ++layer) call(0, layer, m);
      if (stage + 1 < of.pp) call(2, 0, m);
    }
    for (const BlockId block : {3u, 4u, 5u}) call(block, 0, 0);
  }
  return toy;
}

using StageTimes = std::vector<std::array<Picoseconds, 3>>;
std::map<std::int64_t, StageTimes> times_of(const SimResult& result) {
  std::map<std::int64_t, StageTimes> times;
  for (const TimelineRow& row : result.timeline.rows) times[row.rank].push_back({row.ready, row.start, row.end});
  return times;
}

double cpu_s(const Toy& toy, const BoundStep& step) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();
    simulate(toy.schedule, step, toy.costs);
    least = std::min(least, double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST_CASE("folded ranks do what they do unfolded, with experts, several ranks a device and stragglers", "[sim]") {
  std::mt19937_64 random(3);
  int folded = 0;
  for (const Layout& layout :
       {Layout{1, 8, 1, 4, 1}, {1, 4, 2, 2, 2}, {2, 4, 2, 8, 1}, {1, 8, 2, 4, 2}, {3, 4, 1, 2, 1}})
    for (const std::int64_t per_device : {1, 2, 4})
      for (int stragglers = 0; stragglers < 3; ++stragglers) {
        Layout of = layout;
        of.per_device = per_device;
        Toy toy = experts(of, 2, 3, random);
        for (int i = 0; i < stragglers; ++i)
          set_apart(toy.costs, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(of.ranks())), 1.37);
        const SimResult some = simulate(toy.schedule, toy.costs),
                        all = simulate(toy.schedule, bind_step(toy.schedule, Folding(toy.schedule.mesh)), toy.costs);
        CAPTURE(of.pp, of.dp, of.tp, of.ep, of.etp, per_device, stragglers, some.programs.size());
        CHECK(some.step == all.step);
        const std::map<std::int64_t, StageTimes> of_some = times_of(some), of_all = times_of(all);
        for (std::int64_t rank = 0; rank < of.ranks(); ++rank)
          CHECK(of_all.at(rank) == of_some.at(some.folding.of(rank)));
        folded += some.programs.size() < all.programs.size();
      }
  CHECK(folded > 20);
}

TEST_CASE("2,048 ranks with experts and one straggler are simulated folded", "[sim][speed]") {
  struct Case {
    Layout layout;
    std::size_t symmetric, straggler;  // ranks simulated
  };
  // A straggler on a device of eight ranks separates that device and another; one with a device of its own separates
  // eight ranks a stage.
  for (const Case& c : {Case{{8, 64, 4, 8, 1, 8}, 8 * 8, 16 * 8}, Case{{8, 64, 4, 16, 1}, 8, 8 * 8}}) {
    std::mt19937_64 random(5);
    Toy toy = experts(c.layout, 6, 24, random);
    const BoundStep step = bind_step(toy.schedule);
    CHECK(step.programs.size() == c.symmetric);
    const double symmetric_s = cpu_s(toy, step);
    set_apart(toy.costs, 777, 1.2);
    const SimResult result = simulate(toy.schedule, step, toy.costs);
    CHECK(result.programs.size() == c.straggler);
    CHECK(result.steady);
    const double straggler_s = cpu_s(toy, step);
    CAPTURE(result.programs.size(), symmetric_s, straggler_s);
    // Calls without other representatives are played, not simulated (sim/call_cache.hpp). A straggler ends that for
    // all ranks that wait for it, so with a device each its ranks take longer than their number says.
    CHECK(straggler_s < (c.layout.per_device > 1 ? 4 : 100) * symmetric_s);
  }
}

}  // namespace
}  // namespace stretto::sim
