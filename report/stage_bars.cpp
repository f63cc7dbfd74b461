#include "report/stage_bars.hpp"

#include <algorithm>
#include <optional>
#include <span>

namespace stretto {
namespace {

BarKind kind_of(const Operation& operation) {
  switch (operation.phase) {
    case Phase::setup:
      return BarKind::setup;
    case Phase::forward:  // lowering names what it computes again ".recompute"
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

// Whether the operation goes on with the bar.
bool continues(const StageBar& bar, const StageBar& next) {
  if (!is_of_micro_batch(next.kind)) return bar.kind == next.kind;
  return bar.micro_batch == next.micro_batch && bar.chunk == next.chunk &&
         (bar.kind == next.kind || (is_backward(bar.kind) && is_backward(next.kind)));
}

// `rows` are the rank's, by op: in host issue order.
std::vector<StageBar> bars_of(const Schedule& schedule, const std::vector<BarKind>& kinds, const BoundProgram& program,
                              std::span<const TimelineRow> rows, Picoseconds step_begin) {
  std::vector<StageBar> bars;
  for (const TimelineRow& row : rows) {
    const BoundOp& op = program.ops[row.op];
    if (schedule.lanes[op.lane].kind != LaneKind::compute) continue;
    const StageBar next{kinds[op.op], op.micro_batch, op.chunk, row.start - step_begin, row.end - step_begin};
    if (bars.empty() || !continues(bars.back(), next)) {
      bars.push_back(next);
      continue;
    }
    StageBar& bar = bars.back();
    if (next.kind == BarKind::backward) bar.kind = BarKind::backward;
    bar.start = std::min(bar.start, next.start);
    bar.end = std::max(bar.end, next.end);
  }
  return bars;
}

}  // namespace

const char* name_of(BarKind kind) {
  switch (kind) {
    case BarKind::forward:
      return "forward";
    case BarKind::backward:
      return "backward";
    case BarKind::weight_gradient:
      return "weight gradient";
    case BarKind::setup:
      return "setup";
    case BarKind::grad_sync:
      return "grad_sync";
    case BarKind::optimizer:
      return "optimizer";
    case BarKind::param_sync:
      return "param_sync";
  }
  return "";
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
                      bars_of(schedule, kinds, *program, {begin, end}, timeline.step_begin)});
  }
  return tracks;
}

}  // namespace stretto
