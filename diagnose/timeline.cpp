#include "diagnose/timeline.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace stretto::diagnose {
namespace {

using trace::Kernel;

// Adds a kernel to the row of its operation; several kernels are one row.
void extend(TimelineRow& row, bool is_new, const Kernel& kernel, const PlacedKernel& placed, Picoseconds shift) {
  const bool moves = trace::is_communication(kernel.cls);
  const Picoseconds start = kernel.start + shift, end = kernel.end + shift;
  if (is_new || start < row.start) {
    row.start = start;
    row.ready = start - kernel.queued;
    row.transfer = moves ? placed.transfer + shift : start;
  }
  if (!is_new && end <= row.end) return;
  row.end = end;
  row.waited = std::min(kernel.waited_for_joined, row.end - row.transfer);
}

}  // namespace

MeasuredTimeline timeline_of(const Schedule& schedule, const std::vector<MeasuredRank>& ranks) {
  MeasuredTimeline result;
  const Picoseconds origin = ranks.front().period.begin;
  Picoseconds longest = 0;
  for (const MeasuredRank& rank : ranks) {
    // A rank without a known clock begins its step with the first rank.
    const bool knows_clock = &rank == &ranks.front() || rank.clock != 0 || rank.trace->step_begin.has_value();
    const Picoseconds shift = knows_clock ? rank.clock - origin : -rank.period.begin;
    longest = std::max(longest, rank.length());
    result.step.programs.push_back(rank.program);
    std::map<std::uint32_t, TimelineRow> rows;  // [op]
    for (const PlacedKernel& placed : rank.placed.kernels) {
      const Kernel& kernel = rank.kernel(placed);
      if (placed.op == kNoOperation) {
        const std::string& stream = rank.trace->streams[kernel.stream].name;
        result.extra.push_back({rank.rank(), stream + ", not in the schedule", short_name(rank.trace->name_of(kernel)),
                                kernel.start + shift, kernel.end + shift});
        continue;
      }
      const BoundOp& first = rank.program.ops[static_cast<std::uint32_t>(placed.op)];
      const std::vector<std::uint32_t>& lane = rank.program.lanes[first.lane];
      for (std::size_t i = 0; i < placed.group && first.position + i < lane.size(); ++i) {
        const std::uint32_t op = lane[first.position + i];
        const auto [row, is_new] = rows.try_emplace(op);
        row->second.rank = static_cast<std::int32_t>(rank.rank());
        row->second.op = op;
        extend(row->second, is_new, kernel, placed, shift);
      }
    }
    for (const auto& [op, row] : rows) result.timeline.rows.push_back(row);
  }
  result.timeline.step_begin = 0;
  result.timeline.step_end = longest;
  (void)schedule;
  return result;
}

TimelineExcerpt excerpt_of(const Schedule& schedule, const MeasuredTimeline& measured, const ExcerptLimits& limits) {
  TimelineExcerpt shown = excerpt(schedule, measured.step.programs, measured.timeline, limits);
  std::map<std::string, LaneId> lane_of;
  std::unordered_map<std::string, std::uint32_t> label_of;
  std::int64_t left = limits.operations - shown.operations();
  for (const TraceExtra& extra : measured.extra) {
    const auto track = std::find_if(shown.tracks.begin(), shown.tracks.end(),
                                    [&](const ExcerptTrack& t) { return t.rank == extra.rank; });
    if (track == shown.tracks.end()) continue;
    ++shown.all_operations;
    const bool is_outside = shown.cut_in_time && (extra.start < shown.window_begin || extra.start > shown.window_end);
    if (is_outside || --left < 0) continue;
    const auto [lane, is_new_lane] = lane_of.try_emplace(extra.lane, static_cast<LaneId>(shown.lanes.size()));
    if (is_new_lane) shown.lanes.push_back(extra.lane);
    const auto [label, is_new] = label_of.try_emplace(extra.name, static_cast<std::uint32_t>(shown.labels.size()));
    if (is_new) shown.labels.push_back({extra.name, "kernel outside the schedule", Phase::setup});
    track->slices.push_back({label->second, lane->second, extra.start, extra.start, extra.end});
  }
  return shown;
}

}  // namespace stretto::diagnose
