#include "report/excerpt.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace stretto {
namespace {

struct Candidate {
  const BoundProgram* program = nullptr;
  const Program* role = nullptr;
  std::int64_t turn = 0;  // how many ranks of its role come before it
  std::vector<const TimelineRow*> rows;
};

std::vector<Candidate> candidates_of(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                     const Timeline& timeline) {
  std::map<std::int64_t, Candidate> by_rank;
  for (const BoundProgram& program : programs)
    by_rank[program.rank] = {&program, &schedule.programs[program.role], 0, {}};
  for (const TimelineRow& row : timeline.rows)
    if (const auto found = by_rank.find(row.rank); found != by_rank.end()) found->second.rows.push_back(&row);
  std::map<const Program*, std::int64_t> seen;
  std::vector<Candidate> candidates;
  for (auto& [rank, candidate] : by_rank) {
    candidate.turn = seen[candidate.role]++;
    candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.turn < b.turn; });
  return candidates;
}

}  // namespace

std::int64_t TimelineExcerpt::operations() const {
  std::int64_t count = 0;
  for (const ExcerptTrack& track : tracks) count += static_cast<std::int64_t>(track.slices.size());
  return count;
}

ExcerptLimits limits_of_page(std::size_t timelines) {
  constexpr std::int64_t kPage = 100'000;
  ExcerptLimits limits;
  if (timelines > 0) limits.operations = std::min(limits.operations, kPage / static_cast<std::int64_t>(timelines));
  return limits;
}

TimelineExcerpt excerpt(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                        const ExcerptLimits& limits) {
  TimelineExcerpt result;
  result.step = timeline.step_end - timeline.step_begin;
  for (const Lane& lane : schedule.lanes) result.lanes.push_back(lane.name);
  std::unordered_map<std::string, std::uint32_t> label_of;
  std::int64_t left = limits.operations;
  bool full = false;
  for (Candidate& candidate : candidates_of(schedule, programs, timeline)) {
    auto& rows = candidate.rows;
    ++result.all_ranks;
    result.all_operations += static_cast<std::int64_t>(rows.size());
    const bool first = result.tracks.empty();
    const bool fits = static_cast<std::int64_t>(rows.size()) <= left &&
                      static_cast<std::int64_t>(result.tracks.size()) < limits.ranks;
    full = full || (!fits && !first);
    if (full) continue;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const TimelineRow* a, const TimelineRow* b) { return a->start < b->start; });
    if (!fits) {
      rows.resize(static_cast<std::size_t>(std::max<std::int64_t>(left, 0)));
      result.cut_in_time = true;
    }
    left -= static_cast<std::int64_t>(rows.size());

    ExcerptTrack track{candidate.program->rank, candidate.role->role, {}};
    for (const TimelineRow* row : rows) {
      const BoundOp& op = candidate.program->ops[row->op];
      const Operation& operation = schedule.operations[op.op];
      const auto [found, is_new] =
          label_of.try_emplace(label(schedule, op), static_cast<std::uint32_t>(result.labels.size()));
      if (is_new) result.labels.push_back({found->first, describe(operation.work), operation.phase});
      const Picoseconds begin = timeline.step_begin;
      track.slices.push_back({found->second, op.lane, row->start - begin, row->transfer - begin, row->end - begin});
    }
    std::stable_sort(track.slices.begin(), track.slices.end(),
                     [](const ExcerptSlice& a, const ExcerptSlice& b) { return a.lane < b.lane; });
    result.tracks.push_back(std::move(track));
  }
  std::sort(result.tracks.begin(), result.tracks.end(),
            [](const ExcerptTrack& a, const ExcerptTrack& b) { return a.rank < b.rank; });
  return result;
}

}  // namespace stretto
