#include "diagnose/measured.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/statistics.hpp"

namespace stretto::diagnose {
namespace {

using trace::Kernel;

Period median_of(const std::vector<Period>& periods) {
  std::vector<double> lengths;
  for (const Period& period : periods) lengths.push_back(double(period.end - period.begin));
  return periods[index_of_median(lengths)];
}

// The step of a trace of Stretto's: all of it. It ends when the last rank has ended.
Period whole_of(const trace::RankTrace& trace, Picoseconds end) {
  Period period;
  period.begin = trace.step_begin.value_or(trace.kernels.front().start);
  period.end = std::max(end, period.begin + 1);
  period.is_whole = true;
  for (std::uint32_t i = 0; i < trace.kernels.size(); ++i) period.kernels.push_back(i);
  return period;
}

PredictedRank predicted_of(const predict::PredictedStep& step, std::int64_t rank) {
  PredictedRank predicted;
  const std::size_t index = step.result.folding.index_of(rank);
  predicted.program = &step.result.programs[index];
  predicted.rows.resize(predicted.program->ops.size(), nullptr);
  for (const TimelineRow& row : step.result.timeline.rows)
    if (row.rank == predicted.program->rank) predicted.rows[row.op] = &row;
  predicted.begin = step.result.timeline.step_begin;
  predicted.period = step.result.timeline.step_end - step.result.timeline.step_begin;
  return predicted;
}

}  // namespace

std::vector<MeasuredRank> measure_ranks(const predict::PredictedStep& step, const trace::Section& section,
                                        trace::Origin origin) {
  const bool is_own = origin == trace::Origin::stretto;
  const std::int64_t all = step.schedule.mesh.ranks();
  Picoseconds end = 0;
  for (const trace::RankTrace& trace : section.ranks)
    for (const Kernel& kernel : trace.kernels) end = std::max(end, kernel.end);
  std::set<std::int64_t> seen;
  std::vector<MeasuredRank> ranks;
  for (const trace::RankTrace& trace : section.ranks) {
    if (trace.rank < 0 || trace.rank >= all)
      throw input_error(
          fmt::format("{}: is of rank {}; expected a rank of the scenario, which has {}", trace.file, trace.rank, all));
    if (!seen.insert(trace.rank).second)
      throw input_error(fmt::format("{}: is of rank {}, as another trace is; expected a trace for each rank",
                                    trace.file, trace.rank));
    MeasuredRank& rank = ranks.emplace_back();
    rank.trace = &trace;
    rank.program = program_of(step.schedule, step.result, trace.rank);
    rank.predicted = predicted_of(step, trace.rank);
    rank.periods = is_own ? std::vector<Period>{whole_of(trace, end)} : find_periods(trace);
    rank.period = median_of(rank.periods);
    rank.placed = place_kernels(step.schedule, rank.predicted, trace, rank.period, is_own);
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const MeasuredRank& a, const MeasuredRank& b) { return a.rank() < b.rank(); });
  return ranks;
}

std::string name_of_communication(const Schedule& schedule, const Operation& operation) {
  const auto* collective = std::get_if<Collective>(&operation.work);
  return schedule.communicators[communicator_of(operation.work)].name + " " +
         (collective ? name_of(collective->kind) : "messages");
}

std::string short_name(const std::string& kernel) {
  std::string name = kernel.substr(0, kernel.find('\n'));
  if (name.starts_with("void ")) name.erase(0, 5);
  // The outermost arguments and templates are cut: their text is long and says little.
  const std::size_t cut = name.find_first_of("<(", 1);
  if (cut != std::string::npos && name.find("device_kernel<") == std::string::npos &&
      name.find("elementwise_kernel<") == std::string::npos && name.find("apply_kernel<") == std::string::npos)
    name.resize(cut);
  constexpr std::size_t kMost = 90;
  if (name.size() > kMost) name = name.substr(0, kMost) + "…";
  return name;
}

void account_for(const Schedule& schedule, std::vector<MeasuredRank>& ranks) {
  for (MeasuredRank& rank : ranks) {
    std::vector<Span> spans;
    for (const TimelineRow* row : rank.predicted.rows) {
      if (row == nullptr) continue;
      const BoundOp& op = rank.predicted.program->ops[row->op];
      const Operation& operation = schedule.operations[op.op];
      const bool moves = is_communication(operation.work);
      spans.push_back({moves ? row->start : row->ready, row->start, row->transfer, row->moved(),
                       moves ? TimeKey{Part::exposed, name_of_communication(schedule, operation)}
                             : TimeKey{Part::kernel, operation.name}});
    }
    rank.expected = account_of(spans, rank.predicted.begin, rank.predicted.period);
    spans.clear();
    for (const PlacedKernel& placed : rank.placed.kernels) {
      const Kernel& kernel = rank.kernel(placed);
      Span span{kernel.start, kernel.start, kernel.start, kernel.end, {}};
      if (trace::is_communication(kernel.cls)) {
        span.transfer = placed.transfer;
        span.end = kernel.end - kernel.waited_for_joined;
        const char* kind = kernel.cls == trace::KernelClass::send_recv ? "messages" : trace::name_of(kernel.cls);
        if (placed.op != kNoOperation)
          span.key = {Part::exposed,
                      name_of_communication(
                          schedule, schedule.operations[rank.program.ops[static_cast<std::uint32_t>(placed.op)].op])};
        else if (placed.communicator != kNoCommunicator)
          span.key = {Part::exposed, schedule.communicators[placed.communicator].name + " " + kind};
        else
          span.key = {Part::exposed, std::string(kind) + " outside the schedule"};
      } else {
        span.queued_from = kernel.start - kernel.queued;
        if (placed.op != kNoOperation)
          span.key = {Part::kernel,
                      schedule.operations[rank.program.ops[static_cast<std::uint32_t>(placed.op)].op].name};
        else
          span.key = {Part::unscheduled, short_name(rank.trace->name_of(kernel))};
      }
      spans.push_back(std::move(span));
    }
    rank.measured = account_of(spans, rank.period.begin, rank.length());
  }
}

}  // namespace stretto::diagnose
