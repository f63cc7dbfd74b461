#include <algorithm>
#include <cmath>
#include <optional>

#include "base/statistics.hpp"
#include "base/values_of.hpp"
#include "calibrate/notebook.hpp"
#include "calibrate/probes/gpu.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/parcel.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

using sim::DemandClass;
using sim::kDemandClasses;

// Kernels that move next to nothing and then wait for their link.
constexpr std::int64_t kWaitingElements = 128;
constexpr double kWaiting_us = 200;

// The communication of the ranks: with kernels an all-gather, with copy engines a message from each rank to the next.
struct Transfers {
  CommEngine engine = CommEngine::sm;
  std::int64_t members = 2;
  int ctas = 1;               // of kernels
  std::int64_t elements = 0;  // elements that a rank sends at a time
};

// Ranks with programs of their own; lanes with the priority that lanes have unless a scenario sets another. All ranks
// send to each other `count` times; the first rank computes `computes` times, from the first transfer on. Either number
// may be 0.
struct ConcurrentTransfers {
  Schedule schedule;
  std::optional<OpId> transfer, compute;  // transfer: the operation at which the bytes arrive

  ConcurrentTransfers(const Transfers& moved, int count, const DemandClass* cls, const ClassOperations& operations,
                      int computes) {
    constexpr LaneId kSending = 1;  // a collective uses this lane too
    const std::int64_t members = moved.members, slice = moved.elements;
    const bool copies = moved.engine == CommEngine::copy_engine;
    schedule.name = "probe_transfers";
    schedule.compute_dtype = operations.dtype;
    schedule.mesh = Mesh({{Coord::pp, members}});
    schedule.placement.ranks_per_device = members;
    schedule.lanes = {{"compute", LaneKind::compute, 0}, {"pp", LaneKind::communication, 0}};
    if (copies) schedule.lanes.push_back({"pp.recv", LaneKind::communication, 0});
    schedule.communicators = {{"pp", {Coord::pp}, moved.engine, moved.ctas, members}};
    for (std::int64_t stage = 0; stage < members; ++stage)
      schedule.programs.push_back({"stage " + std::to_string(stage), {}});
    Block zero{"zero", {}};
    // The buffer belongs to no micro-batch: it is filled once, and moved again and again.
    const TensorId buffer = add_tensor(schedule, "buffer", operations.dtype, BufferKind::input, 1, members * slice);
    const OpId filled = add_operation(
        schedule, zero, {"fill", Fill{members * slice, 0.5}, 0, Phase::setup, {write(whole(schedule, buffer))}});
    const BlockId first = add_block(schedule, std::move(zero));
    std::optional<BlockId> computing;
    if (cls != nullptr) {
      computing = add_class_operation(schedule, *cls, operations, 0, "compute");
      compute = schedule.blocks[*computing].ops.front();
    }
    std::vector<BlockId> transferring;
    if (count > 0 && copies) {
      const View own{buffer, 0, 0, 0, 1, slice, slice}, other{buffer, 0, 0, slice, 1, slice, slice};
      transferring = {
          add_single(schedule, {"send", PointToPoint{true, 0, 1, slice}, kSending, Phase::param_sync, {read(own)}}),
          add_single(schedule,
                     {"recv", PointToPoint{false, 0, -1, slice}, kSending + 1, Phase::param_sync, {write(other)}})};
    } else if (count > 0) {
      const View own{buffer, 0, 0, Expr(Coord::pp) * Expr(slice), 1, slice, slice};
      transferring = {add_single(schedule, {"gather",
                                            Collective{CollectiveKind::all_gather, 0, members * slice},
                                            kSending,
                                            Phase::param_sync,
                                            {read(own), write(whole(schedule, buffer))}})};
    }
    if (!transferring.empty()) transfer = schedule.blocks[transferring.back()].ops.front();
    for (std::int64_t stage = 0; stage < members; ++stage) {
      auto& order = schedule.programs[static_cast<std::size_t>(stage)].order;
      const bool computes_here = stage == 0 && computing.has_value();
      order.push_back(call_block(schedule, first));
      for (const BlockId block : transferring)
        order.back().waits.push_back(
            {EdgeKind::finish_start, {schedule.blocks[block].ops.front(), 0, count - 1, 0, 1}});
      // The order is that of execution: the host issues operations while the first ones already run.
      const int own_computes = computes_here ? computes : 0;
      for (int t = 0, c = 0; t < count || c < own_computes;) {
        if (c == own_computes || (t < count && t * own_computes <= c * count)) {
          for (const BlockId block : transferring) {
            order.push_back(call_block(schedule, block, 0, t));
            if (t == 0) order.back().waits = {{EdgeKind::finish_start, {filled, 0, 0, 0, 0}}};
            // A transfer waits for the one two before it, so that no rank runs far ahead and none waits between two
            // copies.
            if (t > 1 && copies) order.back().waits = {{EdgeKind::finish_start, {*transfer, 0, t - 2, 0, 0}}};
          }
          ++t;
        } else {
          order.push_back(call_block(schedule, *computing, 0, c));
          if (c == 0 && transfer) order.back().waits = {{EdgeKind::start_start, {*transfer, 0, 0, 0, 0}}};
          ++c;
        }
      }
    }
  }
};

// Times on the first rank, of transfers and of computations that were concurrent with the other kind from begin to end;
// of all, where the program has one kind only.
struct Together {
  std::vector<double> transfer_us, compute_us;
};

Together run_together(const ConcurrentTransfers& probe, const Machine& machine, const RunOptions& links, int repeats) {
  Together times;
  const ProbeRun run = run_probe(probe.schedule, machine, links, 1, repeats,
                                 [&](exec::Executor& executor) { fill_randomly(probe.schedule, executor); });
  const BoundProgram& program = run.programs.front();
  for (const Timeline& timeline : run.timelines) {
    struct Window {
      Picoseconds begin = INT64_MAX, end = 0;
    } transferring, computing;
    const auto is = [&](const TimelineRow& row, const std::optional<OpId>& op) {
      return row.rank == 0 && op && program.ops[row.op].op == *op;
    };
    for (const TimelineRow& row : timeline.rows) {
      if (!is(row, probe.transfer) && !is(row, probe.compute)) continue;
      Window& window = is(row, probe.transfer) ? transferring : computing;
      window.begin = std::min(window.begin, row.transfer);
      window.end = std::max(window.end, row.end);
    }
    for (const TimelineRow& row : timeline.rows) {
      const auto inside = [&](const Window& window, const std::optional<OpId>& other) {
        return !other || (row.transfer >= window.begin && row.end <= window.end);
      };
      if (is(row, probe.transfer) && inside(computing, probe.compute))
        times.transfer_us.push_back(to_us(row.end - row.transfer));
      if (is(row, probe.compute) && inside(transferring, probe.transfer))
        times.compute_us.push_back(to_us(row.end - row.transfer));
    }
  }
  return times;
}

void add_point(sim::Curve& curve, double at, const std::vector<double>& together_us, double alone_us) {
  if (together_us.empty() || alone_us <= 0) return;  // nothing was measured
  curve.at.push_back(at);
  curve.value.push_back(std::clamp(median(together_us) / alone_us - 1, 0.0, 100.0));
  curve.source.spread_pct = std::max(curve.source.spread_pct, spread_pct(together_us));
}

// The mutual effects of transfers and compute of each class; adds a point to each curve.
struct Effects {
  std::array<sim::Curve, kDemandClasses>*of_compute = nullptr, *of_transfers = nullptr;  // of_transfers may be null
};
void measure(const Machine& machine, const GpuSizes& sizes, const std::array<double, kDemandClasses>& alone_us,
             const Transfers& moved, const RunOptions& links, double at, const Effects& effects) {
  const auto count = [](double window_us, double one_us) {
    return static_cast<int>(std::clamp(std::ceil(window_us / std::max(one_us, 1.0)), 3.0, 200.0));
  };
  // On a paced link all of the time is latency: one step of a ring of two.
  double transfer_us = links.link_latency_us;
  if (links.link_GBps == 0)
    transfer_us =
        median(run_together(ConcurrentTransfers(moved, 4, nullptr, sizes.classes, 0), machine, links, sizes.repeats)
                   .transfer_us);
  for (std::size_t c = 0; c < kDemandClasses; ++c) {
    const auto cls = static_cast<DemandClass>(c);
    const double window_us = std::max({sizes.window_us, 4 * alone_us[c], 4 * transfer_us});
    const ConcurrentTransfers both(moved, count(window_us, transfer_us), &cls, sizes.classes,
                                   count(window_us, alone_us[c]));
    const Together together = run_together(both, machine, links, sizes.repeats);
    add_point((*effects.of_compute)[c], at, together.compute_us, alone_us[c]);
    if (effects.of_transfers) add_point((*effects.of_transfers)[c], at, together.transfer_us, transfer_us);
  }
}

constexpr std::array kCurves = {&TransferCurves::beside_moving, &TransferCurves::beside_waiting,
                                &TransferCurves::moving_beside, &TransferCurves::beside_copying,
                                &TransferCurves::copying_beside};

void append(TransferCurves& curves, const TransferCurves& points) {
  for (const auto set : kCurves)
    for (std::size_t c = 0; c < kDemandClasses; ++c) {
      sim::Curve& curve = (curves.*set)[c];
      const sim::Curve& more = (points.*set)[c];
      curve.at.insert(curve.at.end(), more.at.begin(), more.at.end());
      curve.value.insert(curve.value.end(), more.value.begin(), more.value.end());
      curve.source.spread_pct = std::max(curve.source.spread_pct, more.source.spread_pct);
    }
}

void name_sources(std::array<sim::Curve, kDemandClasses>& curves, const std::string& origin) {
  for (sim::Curve& curve : curves)
    if (curve.at.empty())
      curve = {{1}, {0}, {"assumed", "in the probe no operation ran concurrently from begin to end", 0}};
    else
      curve.source = {"measured", origin, curve.source.spread_pct};
}

}  // namespace

TransferCurves without_transfers(const std::string& reason) {
  TransferCurves curves;
  for (const auto set : kCurves) (curves.*set).fill({{1}, {0}, {"assumed", reason, 0}});
  return curves;
}

TransferCurves probe_transfers(const Machine& machine, const GpuSizes& sizes,
                               const std::array<double, kDemandClasses>& alone_us, Notebook& notebook) {
  TransferCurves curves;
  for (const int ctas : sizes.ctas)
    append(curves, notebook.part("compute concurrent with kernels of " + std::to_string(ctas) + " blocks", [&] {
      TransferCurves point;
      const double blocks = 2 * ctas;
      measure(machine, sizes, alone_us, {CommEngine::sm, 2, ctas, sizes.slice_elements}, {}, blocks,
              {&point.beside_moving, &point.moving_beside});
      measure(machine, sizes, alone_us, {CommEngine::sm, 2, ctas, kWaitingElements}, {1e6, kWaiting_us}, blocks,
              {&point.beside_waiting});
      return point;
    }));
  for (const std::int64_t members : sizes.members)
    append(curves, notebook.part("compute concurrent with copies of " + std::to_string(members), [&] {
      TransferCurves point;
      measure(machine, sizes, alone_us, {CommEngine::copy_engine, members, 1, sizes.slice_elements}, {},
              static_cast<double>(members), {&point.beside_copying, &point.copying_beside});
      return point;
    }));
  const std::string gathers = "two ranks gather from each other while one of them computes, overlapped window, ",
                    copies = "ranks in a ring copy to the next while one of them computes, overlapped window";
  name_sources(curves.beside_moving, gathers + "links not paced");
  name_sources(curves.beside_waiting, gathers + "kernels that wait for their link");
  name_sources(curves.moving_beside, gathers + "links not paced");
  name_sources(curves.beside_copying, copies);
  name_sources(curves.copying_beside, copies);
  return curves;
}

std::vector<Sample> probe_copies(const Machine& machine, const GpuSizes& sizes) {
  constexpr int kCount = 4;
  std::vector<Sample> samples;
  for (const std::int64_t members : sizes.members)
    for (const std::int64_t elements : sizes.elements) {
      const ConcurrentTransfers probe({CommEngine::copy_engine, members, 1, elements}, kCount, nullptr, sizes.classes,
                                      0);
      const std::vector<double> times = run_together(probe, machine, {}, sizes.repeats).transfer_us;
      const sim::WorkCost cost = sim::copy_cost(elements * bytes_of(sizes.classes.dtype), static_cast<double>(members));
      samples.push_back(sample_of(cost, std::max(median(times), kLeastTransfer_us), times));
    }
  return samples;
}

std::vector<Sample> probe_moves(const Machine& machine, const GpuSizes& sizes, double wake_us) {
  std::vector<Sample> samples;
  for (const std::int64_t members : sizes.members)
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::f64})
      for (const CollectiveKind kind : kinds_of_equal_slices()) {
        // In f64 only a few numbers are sent, in all-reduces.
        if (dtype == Dtype::f64 && kind != CollectiveKind::all_reduce) continue;
        const auto small = sizes.elements.begin() + std::min<std::ptrdiff_t>(2, std::ssize(sizes.elements));
        const std::vector<std::int64_t> elements(sizes.elements.begin(),
                                                 dtype == Dtype::f64 ? small : sizes.elements.end());
        const Schedule schedule = collective_schedule(kind, dtype, members, elements, sizes.ctas);
        const ProbeRun run = run_probe(schedule, machine, {}, 2, sizes.repeats);
        const double phases = rule_of(kind).phases;
        for (const auto& [op, times] : communication_times_us(schedule, run)) {
          const auto& collective = std::get<Collective>(schedule.operations[op].work);
          const sim::WorkCost cost =
              sim::on_blocks(sim::movement_cost(collective, dtype, members, rule_of(kind).in_place()),
                             schedule.communicators[collective.communicator].channels, static_cast<double>(members));
          // After each phase members wait for each other.
          const double us = median(times) / phases - wake_us;
          samples.push_back(sample_of(cost, std::max(us, kLeastTransfer_us), times));
        }
      }
  return samples;
}

}  // namespace stretto::calibrate
