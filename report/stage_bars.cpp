#include "report/stage_bars.hpp"

#include <algorithm>
#include <span>

#include "base/values_of.hpp"
#include "report/lane_windows.hpp"

namespace stretto {
namespace {

BarKind kind_of(const Operation& operation) {
  switch (operation.phase) {
    case Phase::setup:
      return BarKind::setup;
    case Phase::forward:  // lowering adds ".recompute" to the names of recomputed operations
      return operation.name.find(".recompute") == std::string::npos ? BarKind::forward : BarKind::backward;
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

// `rows` are the rank's, by op: in host issue order.
std::vector<StageBar> bars_of(const Schedule& schedule, const std::vector<BarKind>& kinds, const BoundProgram& program,
                              std::span<const TimelineRow> rows, const Timeline& timeline) {
  std::vector<Run> runs;
  for (const TimelineRow& row : rows) {
    const BoundOp& op = program.ops[row.op];
    if (schedule.lanes[op.lane].kind != LaneKind::compute) continue;
    Run next{kinds[op.op], op.micro_batch, op.chunk};
    if (runs.empty() || !runs.back().has(next)) runs.push_back(next);
    if (next.kind == BarKind::backward) runs.back().kind = BarKind::backward;
    runs.back().times.push_back({row.start - timeline.step_begin, row.end - timeline.step_begin});
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
    tracks.push_back({schedule.programs[program->role].role, program->rank,
                      bars_of(schedule, kinds, *program, {begin, end}, timeline)});
  }
  return tracks;
}

}  // namespace stretto
