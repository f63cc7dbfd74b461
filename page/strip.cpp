#include "page/strip.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "report/critical_path.hpp"
#include "report/prediction.hpp"
#include "report/stage_bars.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;

// Time by cause; few of the causes have any.
using TimeByCause = std::vector<std::pair<std::size_t, Picoseconds>>;

void add_to(TimeByCause& lost, std::size_t cause, Picoseconds time) {
  for (auto& one : lost)
    if (one.first == cause) {
      one.second += time;
      return;
    }
  lost.push_back({cause, time});
}

Json json_of(const TimeByCause& lost) {
  Json list = Json::array();
  for (const auto& one : lost) {
    list.push_back(one.first);
    list.push_back(one.second);
  }
  return list;
}

// Exposed time has a cause for each communicator; the other causes follow.
std::size_t index_of(const LostTime& lost, std::size_t communicators) {
  if (lost.cause == LossCause::exposed) return lost.communicator;
  return communicators + static_cast<std::size_t>(lost.cause) - 1;
}

struct Gap {
  Picoseconds start = 0, end = 0;
  TimeByCause lost;
};

// One bar of any track of a GPU, with what the GPU loses in it.
struct DrawnBar {
  const StageBar* bar = nullptr;
  TimeByCause lost;
  Picoseconds wgrad = 0;
};

// Time of computation by phase, "forward", "recompute", …
using TimeByPhase = std::map<std::string, Picoseconds>;

// Adds the time in which a GPU computes, each instant once, and gives backward bars the part that is for weight
// gradients.
void compute_by_phase(const DrawnStep& drawn, std::size_t index, const std::vector<DrawnBar*>& bars,
                      TimeByPhase& computing) {
  const Schedule& schedule = drawn.step().schedule;
  const BoundProgram& program = drawn.program(index);
  const Picoseconds begin = drawn.step().result.timeline.step_begin;
  std::map<std::pair<std::int32_t, std::int16_t>, std::vector<DrawnBar*>> backward;  // by micro-batch and chunk
  for (DrawnBar* one : bars)
    if (one->bar->kind == BarKind::backward || one->bar->kind == BarKind::weight_gradient)
      backward[{one->bar->micro_batch, one->bar->chunk}].push_back(one);
  std::vector<const TimelineRow*> rows;
  for (const TimelineRow& row : drawn.rows_of(index))
    if (schedule.lanes[program.ops[row.op].lane].kind == LaneKind::compute) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TimelineRow* a, const TimelineRow* b) { return a->start < b->start; });
  Picoseconds until = rows.empty() ? 0 : rows.front()->start;
  for (const TimelineRow* row : rows) {
    const Picoseconds time = std::max<Picoseconds>(row->end - std::max(row->start, until), 0);
    until = std::max(until, row->end);
    const BoundOp& op = program.ops[row->op];
    const Operation& operation = schedule.operations[op.op];
    computing[operation.is_recomputed() ? "recompute" : name_of(operation.phase)] += time;
    if (operation.phase != Phase::wgrad) continue;
    const auto found = backward.find({op.micro_batch, op.chunk});
    if (found == backward.end()) continue;
    for (DrawnBar* one : found->second)
      if (row->start - begin >= one->bar->start && row->end - begin <= one->bar->end) {
        one->wgrad += time;
        break;
      }
  }
}

// Gives each bar, in the order of their starts, the part of the lost time that lies in it, and returns the rest. Where
// bars overlap, the first one takes it.
std::vector<Gap> distribute(const std::vector<LostTime>& lost, std::size_t communicators,
                            const std::vector<DrawnBar*>& bars) {
  std::vector<Gap> gaps;
  std::size_t first = 0;  // the first bar that may reach into the lost time
  for (const LostTime& one : lost) {
    const std::size_t cause = index_of(one, communicators);
    Picoseconds at = one.begin;
    const auto outside = [&](Picoseconds until) {
      if (until <= at) return;
      if (gaps.empty() || gaps.back().end != at) gaps.push_back({at, at, {}});
      gaps.back().end = until;
      add_to(gaps.back().lost, cause, until - at);
      at = until;
    };
    while (first < bars.size() && bars[first]->bar->end <= one.begin) ++first;
    for (std::size_t i = first; i < bars.size() && bars[i]->bar->start < one.end; ++i) {
      const StageBar& bar = *bars[i]->bar;
      if (bar.end <= at) continue;
      outside(std::min(bar.start, one.end));
      const Picoseconds until = std::min(bar.end, one.end);
      if (until <= at) continue;
      add_to(bars[i]->lost, cause, until - at);
      at = until;
    }
    outside(one.end);
  }
  return gaps;
}

Json causes_json(const Schedule& schedule) {
  Json causes = Json::array();
  for (const Communicator& communicator : schedule.communicators)
    causes.push_back({{"cause", name_of(LossCause::exposed)},
                      {"communicator", communicator.name},
                      {"axis", name_of(axis_of(communicator.axes))}});
  for (int cause = static_cast<int>(LossCause::exposed) + 1; cause < kLossCauses; ++cause)
    causes.push_back({{"cause", name_of(static_cast<LossCause>(cause))}, {"communicator", nullptr}, {"axis", nullptr}});
  return causes;
}

Json track_json(const StageTrack& track, std::size_t program, const std::vector<DrawnBar>& bars,
                const std::vector<Gap>& gaps) {
  Json of_bars = Json::array(), of_gaps = Json::array();
  for (const DrawnBar& one : bars) {
    const StageBar& bar = *one.bar;
    of_bars.push_back({static_cast<int>(bar.kind), bar.micro_batch, bar.chunk, bar.start, bar.end, bar.computes(),
                       json_of(one.lost), one.wgrad});
  }
  for (const Gap& gap : gaps) of_gaps.push_back({gap.start, gap.end, json_of(gap.lost)});
  return {{"role", track.role},
          {"rank", track.rank},
          {"program", program},
          {"bars", std::move(of_bars)},
          {"gaps", std::move(of_gaps)}};
}

// Returns the critical path as stretches on the drawn GPU of a stage, in order.
Json path_json_of(const DrawnStep& drawn, const std::vector<StageTrack>& tracks) {
  const predict::PredictedStep& step = drawn.step();
  std::map<std::size_t, std::int64_t> drawn_rank;  // [role]
  for (const StageTrack& track : tracks) drawn_rank[drawn.program(drawn.program_of(track.rank)).role] = track.rank;
  std::map<std::int64_t, std::int64_t> drawn_as;  // [rank]
  for (const BoundProgram& program : step.result.programs) drawn_as[program.rank] = drawn_rank.at(program.role);
  const Picoseconds begin = step.result.timeline.step_begin;
  Json path = Json::array();
  std::int64_t last = -1;
  for (const TimelineRow& row : critical_path(step.result, step.result.timeline).rows) {
    const std::int64_t rank = drawn_as.at(row.rank);
    if (rank != last) path.push_back({rank, row.transfer - begin, row.moved() - begin});
    path.back()[2] = row.moved() - begin;
    last = rank;
  }
  return path;
}

}  // namespace

Json strip_json(DrawnStep& drawn) {
  const predict::PredictedStep& step = drawn.step();
  const std::vector<StageTrack> tracks = stage_bars(step.schedule, step.result.programs, step.result.timeline);
  Json list = Json::array(), by_phase = Json::array();
  TimeByPhase computing;
  Picoseconds gpus = 0;
  for (std::size_t t = 0; t < tracks.size();) {
    std::size_t next = t;  // after the tracks of this rank
    while (next < tracks.size() && tracks[next].rank == tracks[t].rank) ++next;
    std::vector<std::vector<DrawnBar>> bars(next - t);
    std::vector<DrawnBar*> in_order;
    for (std::size_t i = t; i < next; ++i)
      for (const StageBar& bar : tracks[i].bars) bars[i - t].push_back({&bar, {}});
    for (std::vector<DrawnBar>& of_track : bars)
      for (DrawnBar& one : of_track) in_order.push_back(&one);
    std::stable_sort(in_order.begin(), in_order.end(),
                     [](const DrawnBar* a, const DrawnBar* b) { return a->bar->start < b->bar->start; });
    const std::size_t program = drawn.program_of(tracks[t].rank);
    const std::vector<Gap> gaps = distribute(drawn.lost(program), step.schedule.communicators.size(), in_order);
    compute_by_phase(drawn, program, in_order, computing);
    ++gpus;
    for (std::size_t i = t; i < next; ++i)
      list.push_back(track_json(tracks[i], program, bars[i - t], i == t ? gaps : std::vector<Gap>{}));
    t = next;
  }
  for (const auto& one : computing) by_phase.push_back({one.first, one.second / gpus});
  return {{"tracks", std::move(list)},
          {"computing", std::move(by_phase)},
          {"path", path_json_of(drawn, tracks)},
          {"causes", causes_json(step.schedule)},
          {"step_ps", step.result.step}};
}

}  // namespace stretto::page
