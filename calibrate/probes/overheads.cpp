#include "base/statistics.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "model/lower/builder.hpp"
#include "model/ring.hpp"

namespace stretto::calibrate {
namespace {

constexpr int kChainLength = 400;

// Returns the mean: a step has hundreds of these values, and their distribution has a long tail. A value far beyond the
// median was a burst of a neighbour, which another probe measures.
Quantity quantity(const std::vector<double>& values_us, const std::string& probe) {
  const double most = median(values_us) + kShortestBurst_us;
  double sum = 0, count = 0;
  for (const double us : values_us)
    if (us <= most) sum += us, ++count;
  const double mean = sum / count;
  return {std::max(0.0, mean), {"measured", probe, spread_pct(values_us)}};
}

// `lanes` compute lanes; operation i runs on lane i mod lanes and waits for operation i − 1 when that is on another
// lane.
Schedule chain_schedule(int lanes) {
  Schedule schedule;
  schedule.name = "probe_chain";
  schedule.mesh = Mesh({{Coord::dp, 1}});
  schedule.lanes = {{"compute", LaneKind::compute, 0}, {"other", LaneKind::compute, 0}};
  schedule.programs = {{"rank", {}}};
  for (int i = 0; i < kChainLength; ++i) {
    const std::string suffix = "." + std::to_string(i);
    const TensorId tensor = add_tensor(schedule, "cell" + suffix, Dtype::f32, BufferKind::workspace, 1, 16);
    const BlockId block = add_single(
        schedule,
        {"fill" + suffix, Fill{16, 1}, static_cast<LaneId>(i % lanes), Phase::setup, {write(whole(schedule, tensor))}});
    Call call = call_block(schedule, block);
    const OpId previous = schedule.blocks[block].ops.front() - 1;
    if (i > 0 && lanes > 1) call.waits = {{EdgeKind::finish_start, {previous, 0, 0, 0, 0}}};
    if (i == 0 && lanes > 1) call.waits = {{EdgeKind::finish_start, {OpId(kChainLength - 1), 0, 0, 0, 1}}};
    schedule.programs.front().order.push_back(std::move(call));
  }
  return schedule;
}

// Returns the times from the end of one operation to the start of the next.
std::vector<double> gaps_us(const Schedule& schedule, const Machine& machine) {
  std::vector<double> gaps;
  for (const Timeline& timeline : run_probe(schedule, machine, {}, 3, 11).timelines)
    for (std::size_t i = 1; i < timeline.rows.size(); ++i)
      gaps.push_back(to_us(timeline.rows[i].start - timeline.rows[i - 1].end));
  return gaps;
}

// Returns how late two ranks wake from a transfer that sleeps for `latency_us`.
std::vector<double> overshoots_us(const Machine& machine) {
  Schedule schedule;
  schedule.name = "probe_timer";
  schedule.mesh = Mesh({{Coord::dp, 2}});
  schedule.placement.ranks_per_device = 2;
  schedule.lanes = {{"compute", LaneKind::compute, 0}, {"dp", LaneKind::communication, -1}};
  schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, 2}};
  schedule.programs = {{"rank", {}}};
  const TensorId cell = add_tensor(schedule, "cell", Dtype::f32, BufferKind::workspace, 1, 16);
  auto& order = schedule.programs.front().order;
  order.push_back(call_block(
      schedule, add_single(schedule, {"fill", Fill{16, 1}, 0, Phase::setup, {write(whole(schedule, cell))}})));
  order.push_back(call_block(schedule, add_single(schedule, {"all_reduce",
                                                             Collective{CollectiveKind::all_reduce, 0, 16},
                                                             1,
                                                             Phase::grad_sync,
                                                             {accumulate(whole(schedule, cell))}})));
  order[0].waits = {{EdgeKind::finish_start, {1, 0, 0, 0, 1}}};
  order[1].waits = {{EdgeKind::finish_start, {0, 0, 0, 0, 0}}};
  const RunOptions links = {1, 1000};
  const RingCost ring = ring_cost(CollectiveKind::all_reduce, Dtype::f32, 16, 2);
  const double expected_us =
      double(ring.steps) * links.link_latency_us + double(ring.edge_bytes) / links.link_GBps * 1e-3;
  std::vector<double> late;
  const ProbeRun run = run_probe(schedule, machine, links, 3, 31);
  for (const Timeline& timeline : run.timelines)
    for (const TimelineRow& row : timeline.rows)
      if (is_communication(run.programs.front().work_of(row.op)))
        late.push_back(to_us(row.end - row.transfer) - expected_us);
  return late;
}

}  // namespace

Overheads probe_overheads(const Machine& machine) {
  const std::vector<double> chain = gaps_us(chain_schedule(1), machine),
                            alternating = gaps_us(chain_schedule(2), machine);
  Overheads overheads;
  overheads.op_overhead_us = quantity(chain, "chain of 400 fills on one lane, end to start");
  std::vector<double> wakes;
  for (const double gap : alternating) wakes.push_back(gap - overheads.op_overhead_us.value);
  overheads.wake_us =
      quantity(wakes, "400 fills on two lanes that wait for each other, end to start, less op_overhead");
  overheads.timer_overshoot_us =
      quantity(overshoots_us(machine), "all-reduce of 64 bytes over a link of 1 ms, end less deadline");
  return overheads;
}

}  // namespace stretto::calibrate
