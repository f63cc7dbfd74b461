#include "diagnose/measured.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
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

// The layers of an excerpt of a step may repeat, too, where a trace has no marks.
bool is_step(const trace::RankTrace& trace, const Period& period, const BoundProgram& program) {
  if (!period.is_whole || !trace.marks.empty()) return period.is_whole;
  const auto kernels = std::count_if(period.kernels.begin(), period.kernels.end(), [&](std::uint32_t kernel) {
    return !trace::is_communication(trace.kernels[kernel].cls);
  });
  std::int64_t operations = 0;
  for (std::uint32_t op = 0; op < program.ops.size(); ++op) operations += !is_communication(program.work_of(op));
  return double(kernels) >= kLeastOperations * double(operations);
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
    rank.is_own = is_own;
    rank.program = program_of(step.schedule, step.result, trace.rank);
    rank.predicted = predicted_of(step, trace.rank);
    rank.periods = is_own ? std::vector<Period>{whole_of(trace, end)} : find_periods(trace);
    rank.period = median_of(rank.periods);
    if (!is_own && !is_step(trace, rank.period, rank.program)) {
      rank.period = all_of(trace);
      rank.periods = {rank.period};
    }
    rank.placed = place_kernels(step.schedule, rank.predicted, trace, rank.period, is_own);
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const MeasuredRank& a, const MeasuredRank& b) { return a.rank() < b.rank(); });
  return ranks;
}

TimeKey key_of_communication(const Schedule& schedule, const Operation& operation) {
  const auto* collective = std::get_if<Collective>(&operation.work);
  const std::uint32_t communicator = communicator_of(operation.work);
  return {Part::exposed,
          schedule.communicators[communicator].name + " " + (collective ? name_of(collective->kind) : "messages"),
          communicator};
}

std::string without_part(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return name;
  const std::size_t digits = dot + 1 + (name.compare(dot, 2, ".b") == 0 ? 1 : 0);
  const bool is_part = digits < name.size() && name.find_first_not_of("0123456789", digits) == std::string::npos;
  return is_part ? name.substr(0, dot) : name;
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

namespace {

constexpr Picoseconds kUnknown = std::numeric_limits<Picoseconds>::min();

// When the operations of a step were issued, started and ended, and what came before on their lanes or streams.
struct IssuedOp {
  Picoseconds before = kUnknown, issued = kUnknown, start = kUnknown, end = kUnknown;
};

// Adds the times in which an operation waits for nothing but to be issued, or a communication does for which it waits.
void add_issue(const BoundProgram& program, std::uint32_t op, const std::vector<IssuedOp>& ops, Picoseconds begin,
               std::vector<Span>& spans) {
  const auto add = [&](std::uint32_t late, Picoseconds from) {
    const BoundOp& bound = program.ops[late];
    from = std::max({from, begin, ops[late].before});
    for (std::uint32_t i = bound.wait_begin; i < bound.wait_end; ++i)
      if (const BoundWait& wait = program.waits[i]; wait.steps_ago == 0 && wait.kind == EdgeKind::finish_start)
        from = std::max(from, ops[wait.op].end);
    const Picoseconds until = std::min(ops[late].issued, ops[late].start);
    if (from < until) spans.push_back({until, until, until, until, {Part::kernel, ""}, from, until});
  };
  add(op, ops[op].before);
  const BoundOp& bound = program.ops[op];
  for (std::uint32_t i = bound.wait_begin; i < bound.wait_end; ++i)
    if (const BoundWait& wait = program.waits[i]; wait.steps_ago == 0 && is_communication(program.work_of(wait.op)))
      add(wait.op, ops[op].before);
}

std::vector<Span> predicted_spans(const Schedule& schedule, const PredictedRank& predicted, bool knows_launches) {
  const BoundProgram& program = *predicted.program;
  std::vector<IssuedOp> ops(program.ops.size());
  std::vector<Span> spans;
  for (const TimelineRow* row : predicted.rows) {
    if (row == nullptr) continue;
    const Operation& operation = schedule.operations[program.ops[row->op].op];
    const bool moves = is_communication(operation.work);
    spans.push_back(
        {moves ? row->start : row->ready, row->start, row->transfer, row->moved(),
         moves ? key_of_communication(schedule, operation) : TimeKey{Part::kernel, without_part(operation.name)}});
    // It is ready when the last of its waits is over, or the host has issued it.
    ops[row->op] = {kUnknown, row->ready, row->start, row->end};
  }
  if (!knows_launches) return spans;
  for (const auto& lane : program.lanes)
    for (std::size_t i = 1; i < lane.size(); ++i) ops[lane[i]].before = ops[lane[i - 1]].end;
  for (const TimelineRow* row : predicted.rows)
    if (row != nullptr && !is_communication(program.work_of(row->op)))
      add_issue(program, row->op, ops, predicted.begin, spans);
  return spans;
}

std::vector<Span> measured_spans(const Schedule& schedule, const MeasuredRank& rank) {
  std::vector<IssuedOp> ops(rank.program.ops.size());
  std::map<std::uint32_t, Picoseconds> latest;  // [stream] end of its latest kernel so far
  std::vector<Span> spans;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const Kernel& kernel = rank.kernel(placed);
    const bool is_placed = placed.op != kNoOperation;
    const auto op = static_cast<std::uint32_t>(placed.op);
    Picoseconds& before = latest.try_emplace(kernel.stream, rank.period.begin).first->second;
    // Its first kernel says when an operation was launched.
    if (is_placed && ops[op].start == kUnknown && kernel.launched != trace::kNoTime)
      ops[op] = {before, kernel.launched, kernel.start, kernel.end};
    before = std::max(before, kernel.end);
    if (is_placed) ops[op].end = std::max(ops[op].end, kernel.end);
    Span span{kernel.start, kernel.start, kernel.start, kernel.end, {}};
    if (trace::is_communication(kernel.cls)) {
      span.transfer = placed.transfer;
      span.end = kernel.end - kernel.waited_for_joined;
      const char* kind = kernel.cls == trace::KernelClass::send_recv ? "messages" : trace::name_of(kernel.cls);
      if (is_placed)
        span.key = key_of_communication(schedule, schedule.operations[rank.program.ops[op].op]);
      else if (placed.communicator != kNoCommunicator)
        span.key = {Part::exposed, schedule.communicators[placed.communicator].name + " " + kind, placed.communicator};
      else
        span.key = {Part::exposed, std::string(kind) + " outside the schedule"};
    } else {
      span.queued_from = kernel.start - kernel.queued;
      span.key = is_placed ? TimeKey{Part::kernel, without_part(schedule.operations[rank.program.ops[op].op].name)}
                           : TimeKey{Part::unscheduled, short_name(rank.trace->name_of(kernel))};
    }
    spans.push_back(std::move(span));
  }
  for (std::uint32_t op = 0; op < ops.size(); ++op)
    if (ops[op].start != kUnknown && !is_communication(rank.program.work_of(op)))
      add_issue(rank.program, op, ops, rank.period.begin, spans);
  return spans;
}

}  // namespace

void account_for(const Schedule& schedule, std::vector<MeasuredRank>& ranks) {
  for (MeasuredRank& rank : ranks) {
    const bool knows_launches =
        std::any_of(rank.placed.kernels.begin(), rank.placed.kernels.end(),
                    [&](const PlacedKernel& placed) { return rank.kernel(placed).launched != trace::kNoTime; });
    rank.expected = account_of(predicted_spans(schedule, rank.predicted, knows_launches), rank.predicted.begin,
                               rank.predicted.period);
    rank.measured = account_of(measured_spans(schedule, rank), rank.period.begin, rank.length());
  }
}

}  // namespace stretto::diagnose
