#include "report/stage_bars.hpp"

#include <algorithm>
#include <memory>
#include <span>

#include "base/values_of.hpp"
#include "report/lane_windows.hpp"

namespace stretto {
namespace {

BarKind kind_of(const Operation& operation) {
  switch (operation.phase) {
    case Phase::setup:
      return BarKind::setup;
    case Phase::forward:
      return operation.is_recomputed() ? BarKind::backward : BarKind::forward;
    case Phase::dgrad:
      return BarKind::backward;
    case Phase::wgrad:
      return BarKind::weight_gradient;
    case Phase::grad_sync:
      return BarKind::grad_sync;
    case Phase::optimizer:
      return BarKind::optimizer;
    case Phase::param_sync:
      return BarKind::param_sync;
  }
  return BarKind::setup;
}

bool is_backward(BarKind kind) { return kind == BarKind::backward || kind == BarKind::weight_gradient; }
bool is_of_micro_batch(BarKind kind) { return kind == BarKind::forward || is_backward(kind); }

// Consecutive computation of a stage: operations of one kind, micro-batch and chunk.
struct Run {
  BarKind kind = BarKind::forward;
  std::int32_t micro_batch = 0;
  std::int16_t chunk = 0;
  std::vector<Interval> times = {};  // times of its operations; those of several compute lanes may overlap

  bool has(const Run& next) const {
    if (!is_of_micro_batch(next.kind)) return kind == next.kind;
    return micro_batch == next.micro_batch && chunk == next.chunk &&
           (kind == next.kind || (is_backward(kind) && is_backward(next.kind)));
  }
};

// Adds the bars of a run: one, and one more after each wait of at least `seen`.
void add_bars(Run& run, Picoseconds seen, std::vector<StageBar>& bars) {
  std::sort(run.times.begin(), run.times.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  bool is_first = true;
  for (const Interval& time : run.times) {
    if (is_first || time.begin - bars.back().end >= seen)
      bars.push_back({run.kind, run.micro_batch, run.chunk, time.begin, time.begin});
    StageBar& bar = bars.back();
    bar.waits += std::max<Picoseconds>(time.begin - bar.end, 0);
    bar.end = std::max(bar.end, time.end);
    is_first = false;
  }
}

// Returns the computation of a rank, an operation each, in host issue order.
std::vector<Run> computed_by(const Schedule& schedule, const std::vector<BarKind>& kinds, const BoundProgram& program,
                             std::span<const TimelineRow> rows, const Timeline& timeline) {
  std::vector<Run> all;
  for (const TimelineRow& row : rows) {  // by op
    const BoundOp& op = program.ops[row.op];
    if (schedule.lanes[op.lane].kind != LaneKind::compute) continue;
    all.push_back(
        {kinds[op.op], op.micro_batch, op.chunk, {{row.start - timeline.step_begin, row.end - timeline.step_begin}}});
  }
  return all;
}

// Returns whether a forward pass goes on after a part of a backward pass.
bool passes_alternate(const std::vector<Run>& all) {
  const Run* last_forward = nullptr;
  bool is_broken = false;
  for (const Run& run : all) {
    if (is_backward(run.kind)) is_broken = true;
    if (run.kind != BarKind::forward) continue;
    if (is_broken && last_forward != nullptr && last_forward->has(run)) return true;
    last_forward = &run;
    is_broken = false;
  }
  return false;
}

template <class Belongs>
std::vector<StageBar> bars_of(const std::vector<Run>& all, const Timeline& timeline, Belongs belongs) {
  std::vector<Run> runs;
  for (const Run& next : all) {
    if (!belongs(next.kind)) continue;
    if (runs.empty() || !runs.back().has(next)) runs.push_back({next.kind, next.micro_batch, next.chunk});
    if (next.kind == BarKind::backward) runs.back().kind = BarKind::backward;
    runs.back().times.push_back(next.times.front());
  }
  const Picoseconds seen = std::max<Picoseconds>((timeline.step_end - timeline.step_begin) / kSeenWaits, 1);
  std::vector<StageBar> bars;
  for (Run& run : runs) add_bars(run, is_of_micro_batch(run.kind) ? seen : 1, bars);
  return bars;
}

}  // namespace

const char* name_of(BarKind kind) {
  return name_in({"forward", "backward", "weight gradient", "setup", "grad_sync", "optimizer", "param_sync"}, kind);
}

std::vector<StageTrack> stage_bars(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                   const Timeline& timeline) {
  std::vector<BarKind> kinds;  // [OpId]
  for (const Operation& operation : schedule.operations) kinds.push_back(kind_of(operation));
  std::vector<const BoundProgram*> first(schedule.programs.size(), nullptr);  // [role]
  for (const BoundProgram& program : programs)
    if (first[program.role] == nullptr || program.rank < first[program.role]->rank) first[program.role] = &program;
  std::vector<StageTrack> tracks;
  for (const BoundProgram* program : first) {
    if (program == nullptr) continue;
    const auto begin = std::partition_point(timeline.rows.begin(), timeline.rows.end(),
                                            [&](const TimelineRow& row) { return row.rank < program->rank; });
    const auto end = std::partition_point(begin, timeline.rows.end(),
                                          [&](const TimelineRow& row) { return row.rank <= program->rank; });
    const std::vector<Run> all =
        computed_by(schedule, kinds, *program, {std::to_address(begin), std::to_address(end)}, timeline);
    const std::string& role = schedule.programs[program->role].role;
    if (!passes_alternate(all)) {
      tracks.push_back({role, program->rank, bars_of(all, timeline, [](BarKind) { return true; })});
      continue;
    }
    tracks.push_back(
        {role + ", forward", program->rank, bars_of(all, timeline, [](BarKind kind) { return !is_backward(kind); })});
    tracks.push_back({role + ", backward", program->rank, bars_of(all, timeline, is_backward)});
  }
  return tracks;
}

}  // namespace stretto
