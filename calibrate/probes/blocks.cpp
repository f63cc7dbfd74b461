#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "calibrate/probes/gpu.hpp"
#include "model/lower/builder.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

using sim::DemandClass;
using sim::kDemandClasses;

constexpr int kMembers = 2;
// Kernels that move next to nothing and then wait for their link.
constexpr std::int64_t kWaitingElements = 128;
constexpr double kWaiting_us = 200;

// Two ranks with programs of their own; lanes of the priority that lanes have unless a scenario says otherwise. Both
// gather from each other `gathers` times; the first computes `computes` times, from the first gather on. Either may be
// 0.
struct BesideBlocks {
  Schedule schedule;
  std::optional<OpId> gather, compute;

  BesideBlocks(int ctas, std::int64_t slice, int gathers, const DemandClass* cls, const ClassOperations& operations,
               int computes) {
    schedule.name = "probe_blocks";
    schedule.compute_dtype = operations.dtype;
    schedule.mesh = Mesh({{Coord::pp, kMembers}});
    schedule.placement.ranks_per_device = kMembers;
    schedule.lanes = {{"compute", LaneKind::compute, 0}, {"pp", LaneKind::communication, 0}};
    schedule.communicators = {{"pp", {Coord::pp}, CommEngine::sm, ctas, kMembers}};
    schedule.programs = {{"stage 0", {}}, {"stage 1", {}}};
    Block zero{"zero", {}};
    const TensorId buffer =
        add_tensor(schedule, "buffer", operations.dtype, BufferKind::workspace, 1, kMembers * slice);
    const OpId filled = add_operation(
        schedule, zero, {"fill", Fill{kMembers * slice, 0.5}, 0, Phase::setup, {write(whole(schedule, buffer))}});
    const BlockId first = add_block(schedule, std::move(zero));
    Block operands{"operands", {}};
    std::optional<BlockId> computing;
    if (cls != nullptr) {
      computing = add_class_operation(schedule, *cls, operations, 0, "compute", operands);
      compute = schedule.blocks[*computing].ops.front();
    }
    const BlockId second = add_block(schedule, std::move(operands));
    std::optional<BlockId> gathering;
    if (gathers > 0) {
      const View own{buffer, 0, 0, Expr(Coord::pp) * Expr(slice), 1, slice, slice};
      gathering = add_single(schedule, {"gather",
                                        Collective{CollectiveKind::all_gather, 0, kMembers * slice},
                                        1,
                                        Phase::param_sync,
                                        {read(own), write(whole(schedule, buffer))}});
      gather = schedule.blocks[*gathering].ops.front();
    }
    for (std::size_t stage = 0; stage < kMembers; ++stage) {
      auto& order = schedule.programs[stage].order;
      const bool computes_here = stage == 0 && computing.has_value();
      order.push_back(call_block(schedule, first));
      if (gather) order.back().waits = {{EdgeKind::finish_start, {*gather, 0, gathers - 1, 0, 1}}};
      if (computes_here) order.push_back(call_block(schedule, second));
      // In the order that they are to run: the host issues them while the first already run.
      const int own_computes = computes_here ? computes : 0;
      for (int g = 0, c = 0; g < gathers || c < own_computes;) {
        const bool is_gather = c == own_computes || (g < gathers && g * own_computes <= c * gathers);
        order.push_back(is_gather ? call_block(schedule, *gathering, 0, g) : call_block(schedule, *computing, 0, c));
        if (is_gather && g == 0) {
          // Not before the operands are there: filling them would be beside the first gathers.
          const OpId before = computes_here ? schedule.blocks[second].ops.back() : filled;
          order.back().waits = {{EdgeKind::finish_start, {before, 0, 0, 0, 0}}};
        } else if (!is_gather && c == 0 && gather) {
          order.back().waits = {{EdgeKind::start_start, {*gather, 0, 0, 0, 0}}};
        }
        ++(is_gather ? g : c);
      }
    }
  }
};

// Of the first rank: times of the operations that ran wholly while the other kind did; of all, where there is no other.
struct Together {
  std::vector<double> gather_us, compute_us;
};

Together run_together(const BesideBlocks& probe, const Machine& machine, const ProbeLinks& links, int repeats) {
  Together times;
  const ProbeRun run = run_probe(probe.schedule, machine, links, 1, repeats);
  const BoundProgram& program = run.programs.front();
  for (const Timeline& timeline : run.timelines) {
    struct Window {
      Picoseconds begin = INT64_MAX, end = 0;
    } gathering, computing;
    const auto is = [&](const TimelineRow& row, const std::optional<OpId>& op) {
      return row.rank == 0 && op && program.ops[row.op].op == *op;
    };
    for (const TimelineRow& row : timeline.rows) {
      if (!is(row, probe.gather) && !is(row, probe.compute)) continue;
      Window& window = is(row, probe.gather) ? gathering : computing;
      window.begin = std::min(window.begin, row.transfer);
      window.end = std::max(window.end, row.end);
    }
    for (const TimelineRow& row : timeline.rows) {
      const auto inside = [&](const Window& window, const std::optional<OpId>& other) {
        return !other || (row.transfer >= window.begin && row.end <= window.end);
      };
      if (is(row, probe.gather) && inside(computing, probe.compute))
        times.gather_us.push_back(to_us(row.end - row.transfer));
      if (is(row, probe.compute) && inside(gathering, probe.gather))
        times.compute_us.push_back(to_us(row.end - row.transfer));
    }
  }
  return times;
}

void add_point(sim::Curve& curve, double blocks, const std::vector<double>& together_us, double alone_us) {
  if (together_us.empty() || alone_us <= 0) return;  // nothing was measured
  curve.at.push_back(blocks);
  curve.value.push_back(std::clamp(median_of(together_us) / alone_us - 1, 0.0, 100.0));
  curve.source.spread_pct = std::max(curve.source.spread_pct, spread_pct_of(together_us));
}

}  // namespace

BlockCurves probe_blocks(const Machine& machine, const GpuSizes& sizes,
                         const std::array<double, kDemandClasses>& alone_us) {
  BlockCurves curves;
  const std::string origin = "two ranks that gather from each other beside compute of one of them, overlapped window, ";
  for (std::size_t c = 0; c < kDemandClasses; ++c) {
    curves.beside_moving[c].source = {"measured", origin + "links not paced", 0};
    curves.beside_waiting[c].source = {"measured", origin + "kernels that wait for their link", 0};
    curves.moving_beside[c].source = {"measured", origin + "links not paced", 0};
  }
  const auto count = [](double window_us, double one_us) {
    return static_cast<int>(std::clamp(std::ceil(window_us / std::max(one_us, 1.0)), 3.0, 200.0));
  };
  for (const int ctas : sizes.ctas) {
    const double blocks = kMembers * ctas;
    const BesideBlocks moving(ctas, sizes.slice_elements, 4, nullptr, sizes.classes, 0);
    const double moving_us = median_of(run_together(moving, machine, {}, sizes.repeats).gather_us);
    for (std::size_t c = 0; c < kDemandClasses; ++c) {
      const auto cls = static_cast<DemandClass>(c);
      const double window_us = std::max({sizes.window_us, 4 * alone_us[c], 4 * moving_us});
      const BesideBlocks both(ctas, sizes.slice_elements, count(window_us, moving_us), &cls, sizes.classes,
                              count(window_us, alone_us[c]));
      const Together together = run_together(both, machine, {}, sizes.repeats);
      add_point(curves.beside_moving[c], blocks, together.compute_us, alone_us[c]);
      add_point(curves.moving_beside[c], blocks, together.gather_us, moving_us);

      // All of the link's time is latency: one step of a ring of two.
      const double waiting_us = std::max({sizes.window_us, 4 * alone_us[c], 4 * kWaiting_us});
      const BesideBlocks idle(ctas, kWaitingElements, count(waiting_us, kWaiting_us), &cls, sizes.classes,
                              count(waiting_us, alone_us[c]));
      add_point(curves.beside_waiting[c], blocks,
                run_together(idle, machine, {1e6, kWaiting_us}, sizes.repeats).compute_us, alone_us[c]);
    }
  }
  for (auto* set : {&curves.beside_moving, &curves.beside_waiting, &curves.moving_beside})
    for (sim::Curve& curve : *set)
      if (curve.at.empty()) {
        curve.at = {1};
        curve.value = {0};
        curve.source = {"assumed", "nothing ran wholly beside the other in the probe", 0};
      }
  return curves;
}

std::vector<Sample> probe_moves(const Machine& machine, const GpuSizes& sizes, double wake_us) {
  std::vector<Sample> samples;
  for (const std::int64_t members : sizes.members)
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::f64})
      for (const CollectiveKind kind :
           {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_reduce}) {
        // In f64 only a few numbers travel, in all-reduces.
        if (dtype == Dtype::f64 && kind != CollectiveKind::all_reduce) continue;
        std::vector<std::int64_t> elements = sizes.elements;
        if (dtype == Dtype::f64) elements.resize(std::min<std::size_t>(elements.size(), 2));
        const Schedule schedule = collective_schedule(kind, dtype, members, elements, sizes.ctas);
        const ProbeRun run = run_probe(schedule, machine, {}, 2, sizes.repeats);
        std::map<OpId, std::vector<double>> times_us;
        for (const Timeline& timeline : run.timelines)
          for (const TimelineRow& row : timeline.rows) {
            const OpId op = run.programs.front().ops[row.op].op;
            if (row.rank == 0 && is_communication(schedule.operations[op].work))  // members complete together
              times_us[op].push_back(to_us(row.end - row.transfer));
          }
        const double phases = kind == CollectiveKind::all_reduce ? 2 : 1;
        for (const auto& [op, times] : times_us) {
          const auto& collective = std::get<Collective>(schedule.operations[op].work);
          const sim::WorkCost cost =
              sim::on_blocks(sim::movement_cost(collective, dtype, members, kind == CollectiveKind::all_gather),
                             schedule.communicators[collective.communicator].channels, static_cast<double>(members));
          // Behind each phase members wait for each other.
          const double us = median_of(times) / phases - wake_us;
          samples.push_back({cost.key, cost.features, cost.cls, std::max(us, 0.5), spread_pct_of(times)});
        }
      }
  return samples;
}

}  // namespace stretto::calibrate
