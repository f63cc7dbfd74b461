#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"
#include "model/schedule/order.hpp"
#include "sim/engine.hpp"
#include "tests/cases.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// Returns the toy with one call for each operation: no call is solo. CallCache must give equal results, and this toy
// shares none of its code.
Toy cut_apart(Toy toy) {
  std::vector<Call> single;
  for (const Call& call : toy.schedule.programs[0].order)
    for (std::uint32_t i = 0; i < call.count; ++i) {
      single.push_back(call);
      single.back().first += i;
      single.back().count = 1;
      if (i > 0) single.back().waits.clear();
    }
  toy.schedule.programs[0].order = std::move(single);
  return toy;
}

void require_equal(const SimResult& a, const SimResult& b) {
  REQUIRE(a.operations == b.operations);
  REQUIRE(a.step == b.step);
  REQUIRE(a.steady == b.steady);
  REQUIRE(a.timeline.step_begin == b.timeline.step_begin);
  REQUIRE(a.timeline.step_end == b.timeline.step_end);
  REQUIRE(a.timeline.rows.size() == b.timeline.rows.size());
  for (std::size_t i = 0; i < a.timeline.rows.size(); ++i) {
    const TimelineRow &x = a.timeline.rows[i], &y = b.timeline.rows[i];
    CAPTURE(i, x.ready, y.ready, x.start, y.start, x.transfer, y.transfer, x.end, y.end);
    REQUIRE((x.rank == y.rank && x.op == y.op && x.ready == y.ready && x.start == y.start && x.transfer == y.transfer &&
             x.end == y.end && x.waited == y.waited));
  }
}

// Layers of blocks on all lanes, called one after the other; between them operations of one lane, which wait for the
// end of a call or for an operation inside, and compete for the cores.
Toy random_toy(std::mt19937& random, bool with_messages) {
  const auto draw = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  Toy toy(64);
  toy.schedule.lanes.push_back({"send", LaneKind::communication, 0});
  toy.schedule.lanes.push_back({"receive", LaneKind::communication, 0});
  toy.costs.cores_per_device = static_cast<int>(draw(3));
  for (Lane& lane : toy.schedule.lanes) lane.priority = -static_cast<int>(draw(2));
  // Sometimes communication holds cores; then there are just enough cores.
  const int channels = toy.costs.cores_per_device > 0 && draw(3) == 0 ? 1 + static_cast<int>(draw(2)) : 0;
  if (channels > 0) {
    toy.schedule.communicators.front().engine = CommEngine::sm;
    toy.schedule.communicators.front().channels = channels;
    toy.costs.cores_per_device += 4 * channels;
  }
  // Sometimes communication is concurrent with compute, as on a GPU.
  const bool is_gpu = channels == 0 && draw(3) == 0;
  toy.costs.sleeps_for_cores = !is_gpu || draw(2) == 0;
  const auto with_channels = [&](CollectiveCost cost) {
    cost.cores = channels;
    if (channels > 0 || is_gpu) cost.movement.cores = 0;
    if (!is_gpu) return cost;
    KernelInterference& interference = cost.interference.emplace();
    for (double& share : interference.slows) share = 0.1 * draw(5);
    for (double& share : interference.slowed) share = 0.1 * draw(5);
    return cost;
  };
  toy.costs.op_overhead = draw(3) * us;
  toy.costs.wake = draw(3) * us;
  toy.costs.timer_overshoot = draw(2) * us;
  if (draw(2) == 0)
    for (auto& row : toy.costs.slowdown)
      for (double& slowdown : row) slowdown = 0.1 * draw(5);
  const auto add = [&](const std::string& name, LaneId lane) {
    const auto cls = static_cast<DemandClass>(draw(kDemandClasses));
    if (lane == 0) return toy.compute(name, (1 + draw(9)) * us, {}, static_cast<int>(draw(2)), cls);
    const CollectiveCost cost{draw(4) * us, draw(4) * 1000, {draw(4) * us, 1, cls}, 1 + static_cast<int>(draw(2))};
    return toy.collective(name, with_channels(cost), {}, lane);
  };
  std::vector<Block> blocks;
  for (BlockId b = 0; b < 4; ++b) {
    Block block;
    block.name = "block" + std::to_string(b);
    for (std::uint32_t i = 0, count = b == 3 ? 1 : 2 + draw(5); i < count; ++i) {
      const auto lane = b == 3 ? LaneId{2} : static_cast<LaneId>(draw(8) == 0 ? 2 : draw(2));
      const std::string name = block.name + "." + std::to_string(i);
      if (with_messages && b < 3 && draw(3) == 0) {
        const CollectiveCost cost =
            with_channels({draw(4) * us, draw(4) * 1000, {draw(4) * us, 1, DemandClass::memory}, 1});
        // A message that one lane receives is sent in another; their order does not matter.
        const bool is_send = draw(2) == 0;
        block.ops.push_back(toy.message(name + "a", is_send, cost, is_send ? 3 : 4));
        block.ops.push_back(toy.message(name + "b", !is_send, cost, is_send ? 4 : 3));
      } else {
        block.ops.push_back(add(name, lane));
      }
    }
    for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
      const bool is_message = is_communication(toy.schedule.operations[block.ops[i]].work) && with_messages;
      // A message that waits for the end of an operation issued before it might wait for its own other end.
      const auto kind = draw(8) == 0 || (is_message && i == 1) ? EdgeKind::start_start : EdgeKind::finish_start;
      const std::uint32_t likely = is_message && i > 1 ? i - 2 : i - 1;
      if (i > 0 && draw(8) > 0) block.waits.push_back({i, kind, draw(8) == 0 ? draw(i) : likely});
    }
    blocks.push_back(std::move(block));
  }
  toy.schedule.blocks = std::move(blocks);
  auto& order = toy.schedule.programs[0].order;
  order.clear();
  for (std::int64_t call = 0; call < 24; ++call) {
    const BlockId b = draw(6) == 0 ? 3 : draw(3);
    const auto count = static_cast<std::uint32_t>(toy.schedule.blocks[b].ops.size());
    order.push_back({b, call, 0, 0, 0, count, {}, 0, 0, false, std::uint8_t(with_messages && draw(8) > 0)});
    if (call > 0 && draw(3) == 0) {
      const auto back = static_cast<std::uint32_t>(std::min<std::size_t>(order.size() - 1, 3));
      const Call& on = order[order.size() - 2 - draw(back)];
      const auto& ops = toy.schedule.blocks[on.block].ops;
      const OpId op = draw(2) == 0 ? ops.back() : ops[draw(static_cast<std::uint32_t>(ops.size()))];
      const auto kind = draw(8) == 0 ? EdgeKind::start_start : EdgeKind::finish_start;
      order.back().waits = {{kind, {op, on.layer, 0, 0, draw(8) == 0 ? 1 : 0}}};
    }
    // The awaited operation is over when the second part begins, if the part's first operation waits for it too.
    if (with_messages && count > 2 && draw(4) == 0)
      cut_before(toy.schedule.programs[0], {order.size() - 1, 1 + draw(count - 2)});
  }
  return toy;
}

// Returns the result, or the reason why there is none.
std::pair<SimResult, std::string> result_of(const Toy& toy, const SimOptions& options) {
  try {
    return {simulate(toy.schedule, toy.costs, options), ""};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

}  // namespace

TEST_CASE("playing calls changes nothing, and neither does closing the door to it", "[sim]") {
  std::mt19937 random(3);
  int deadlocks = 0;
  for (int trial = 0; trial < testing::share_of(3000); ++trial) {
    CAPTURE(trial);
    const Toy toy = random_toy(random, trial % 2 == 1);
    SimOptions options;
    options.max_steps = 1 + trial % 6;
    const auto [played, why_not] = result_of(toy, options);
    const auto [single, why] = result_of(cut_apart(toy), options);
    REQUIRE(why_not == why);
    deadlocks += !why.empty();
    if (why.empty()) require_equal(played, single);
    if (trial % 3 != 0) continue;
    options.caches_solo_calls = false;
    const auto [closed, why_closed] = result_of(toy, options);
    REQUIRE(why_closed == why);
    if (why.empty()) require_equal(played, closed);
  }
  CHECK(deadlocks > 0);  // messages may wait for each other
  CHECK(deadlocks < testing::share_of(500));
}

}  // namespace stretto::sim
