#include "report/excerpt.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace stretto {
namespace {

struct Candidate {
  const BoundProgram* program = nullptr;
  const Program* role = nullptr;
  std::int64_t turn = 0;  // number of earlier ranks of its role
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

// Keeps only the rows that start around the middle of the step, at most `most` for all candidates together.
void cut_in_time(std::vector<Candidate>& candidates, std::int64_t most, const Timeline& timeline,
                 TimelineExcerpt& result) {
  const Picoseconds begin = timeline.step_begin, middle = begin + (timeline.step_end - begin) / 2;
  const auto off = [&](const TimelineRow* row) {
    return row->start < middle ? middle - row->start : row->start - middle;
  };
  std::vector<Picoseconds> distances;
  for (const Candidate& candidate : candidates)
    for (const TimelineRow* row : candidate.rows) distances.push_back(off(row));
  const auto last =
      distances.begin() + std::min<std::int64_t>(std::max<std::int64_t>(most, 0), std::ssize(distances) - 1);
  std::nth_element(distances.begin(), last, distances.end());
  const Picoseconds reach = *last;
  for (Candidate& candidate : candidates)
    std::erase_if(candidate.rows, [&](const TimelineRow* row) { return off(row) >= reach; });
  result.cut_in_time = true;
  result.window_begin = middle - reach - begin;
  result.window_end = middle + reach - begin;
}

// Keeps the first bars, equally many of every track.
std::string exchange_of(const Work& work) {
  const auto* collective = std::get_if<Collective>(&work);
  return collective != nullptr && rule_of(collective->kind).of_rows ? name_of(collective->kind) : "";
}

void cut_bars(std::vector<StageTrack>& stages, std::int64_t most, bool& all_bars) {
  std::int64_t count = 0;
  for (const StageTrack& stage : stages) count += std::ssize(stage.bars);
  if (count <= most) return;
  all_bars = false;
  const auto each = static_cast<std::size_t>(most) / stages.size();
  for (StageTrack& stage : stages) stage.bars.resize(std::min(stage.bars.size(), each));
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
  if (timelines == 0) return limits;
  limits.operations = std::min(limits.operations, kPage / static_cast<std::int64_t>(timelines));
  limits.bars = std::min(limits.bars, kPage / static_cast<std::int64_t>(timelines));
  return limits;
}

TimelineExcerpt excerpt(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                        const ExcerptLimits& limits) {
  TimelineExcerpt result;
  result.step = timeline.step_end - timeline.step_begin;
  for (const Lane& lane : schedule.lanes) result.lanes.push_back(lane.name);
  result.stages = stage_bars(schedule, programs, timeline);
  cut_bars(result.stages, limits.bars, result.all_bars);
  std::unordered_map<std::string, std::uint32_t> label_of;
  std::vector<Candidate> candidates = candidates_of(schedule, programs, timeline);
  std::int64_t of_first = 0;  // operations of the first ranks of all roles
  std::size_t firsts = 0;     // number of these ranks that may be shown
  for (const Candidate& candidate : candidates) {
    ++result.all_ranks;
    result.all_operations += std::ssize(candidate.rows);
    if (candidate.turn > 0) continue;
    if (static_cast<std::int64_t>(firsts) >= std::max<std::int64_t>(limits.ranks, 1)) continue;
    ++firsts;
    of_first += std::ssize(candidate.rows);
  }
  if (of_first > limits.operations) {
    candidates.resize(firsts);
    cut_in_time(candidates, limits.operations, timeline, result);
  }
  std::int64_t left = limits.operations;
  for (Candidate& candidate : candidates) {
    auto& rows = candidate.rows;
    const bool fits = std::ssize(rows) <= left && std::ssize(result.tracks) < limits.ranks;
    if (!fits && !result.tracks.empty()) break;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const TimelineRow* a, const TimelineRow* b) { return a->start < b->start; });
    left -= std::ssize(rows);

    ExcerptTrack track{candidate.program->rank, candidate.role->role, {}};
    for (const TimelineRow* row : rows) {
      const BoundOp& op = candidate.program->ops[row->op];
      const Operation& operation = schedule.operations[op.op];
      const auto [found, is_new] =
          label_of.try_emplace(label(schedule, op), static_cast<std::uint32_t>(result.labels.size()));
      if (is_new)
        result.labels.push_back(
            {found->first, describe(operation.work), operation.phase,
             is_communication(operation.work) ? schedule.communicators[communicator_of(operation.work)].name : "",
             exchange_of(operation.work)});
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
