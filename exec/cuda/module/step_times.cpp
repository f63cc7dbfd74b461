#include "exec/cuda/module/step_times.hpp"

#include <algorithm>
#include <variant>

#include "exec/cuda/module/check.hpp"

namespace stretto::cuda {

StepTimes::StepTimes(const std::vector<BoundProgram>& programs) {
  for (const BoundProgram& program : programs) {
    first_mark_.push_back(marks_.size());
    for (std::size_t i = 0; i < kMarks * program.ops.size(); ++i) marks_.push_back(std::make_unique<CudaEvent>(true));
  }
}

Timeline StepTimes::timeline(const CudaEvent& origin, const std::vector<BoundProgram>& programs,
                             const LaunchPlan& launches, bool is_shared) const {
  const auto at = [&](const CudaEvent& event) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, origin.event, event.event), "reading times");
    return static_cast<Picoseconds>(static_cast<double>(ms) * 1e9);
  };
  Timeline timeline;
  timeline.step_begin = at(begin_);
  std::vector<std::size_t> first_row;
  for (std::uint32_t r = 0; r < programs.size(); ++r) {
    first_row.push_back(timeline.rows.size());
    for (std::uint32_t op = 0; op < programs[r].ops.size(); ++op) {
      const Work& work = programs[r].work_of(op);
      TimelineRow row;
      row.rank = static_cast<std::int32_t>(r);
      row.op = op;
      row.ready = row.start = at(mark(r, op, ready));
      row.end = at(mark(r, op, done));
      const bool is_message = std::holds_alternative<PointToPoint>(work) && is_shared;
      row.transfer = is_communication(work) && !is_message ? at(mark(r, op, moving)) : row.start;
      timeline.step_end = std::max(timeline.step_end, row.end);
      timeline.rows.push_back(row);
    }
  }
  if (!is_shared) return timeline;
  // The receiver moves the bytes, so its marks count for both ends.
  for (const LaunchAction& action : launches.actions) {
    if (action.kind != LaunchAction::Kind::launch ||
        !std::holds_alternative<PointToPoint>(programs[action.rank].work_of(action.op)))
      continue;
    const LaunchPlan::Participant sender = launches.rendezvous[action.rendezvous].front();
    const Picoseconds begin = at(mark(action.rank, action.op, moving)), end = at(mark(action.rank, action.op, moved));
    for (const auto& [rank, op] : {LaunchPlan::Participant{action.rank, action.op}, sender}) {
      TimelineRow& row = timeline.rows[first_row[rank] + op];
      row.transfer = std::clamp(begin, row.start, row.end);
      row.waited = row.end - std::clamp(end, row.transfer, row.end);
    }
  }
  return timeline;
}

}  // namespace stretto::cuda
