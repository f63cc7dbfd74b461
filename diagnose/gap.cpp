#include "diagnose/gap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/statistics.hpp"
#include "diagnose/advice.hpp"
#include "diagnose/fits_scenario.hpp"
#include "diagnose/moved.hpp"

namespace stretto::diagnose {
namespace {

Picoseconds value_of(const Account& account, const TimeKey& key) {
  const auto found = account.find(key);
  return found == account.end() ? 0 : found->second;
}

// Parts that a rank does itself, without its peers.
bool is_own(Part part) { return part != Part::exposed && part != Part::peers; }

Picoseconds growth_of(const MeasuredRank& rank) {
  Picoseconds growth = 0;
  for (const auto& [key, time] : rank.measured)
    if (is_own(key.part)) growth += time;
  for (const auto& [key, time] : rank.expected)
    if (is_own(key.part)) growth -= time;
  return growth;
}

Cause cause_of(const TimeKey& key, Picoseconds measured) {
  switch (key.part) {
    case Part::kernel:
      return measured == 0 ? Cause::missing_kernel : Cause::slower_kernel;
    case Part::unscheduled:
      return Cause::unscheduled_kernel;
    case Part::cores:
      return Cause::waiting_for_cores;
    case Part::exposed:
      return Cause::exposed_communication;
    case Part::peers:
      return Cause::straggler;
    case Part::host:
      return Cause::waiting_for_host;
  }
  return Cause::waiting_for_host;
}

std::string name_of_gap(const TimeKey& key) {
  if (key.part == Part::host) return "host";
  if (key.part == Part::cores) return "cores, before " + key.name;
  if (key.part == Part::peers) return "another rank, waited for in " + key.name;
  return key.name;
}

// Accounts of ranks that have the diagnosed rank's program.
std::vector<const MeasuredRank*> like(const std::vector<MeasuredRank>& ranks, const MeasuredRank& rank) {
  std::vector<const MeasuredRank*> others;
  for (const MeasuredRank& other : ranks)
    if (&other != &rank && other.program.role == rank.program.role) others.push_back(&other);
  return others;
}

// The lower of the two middle values when their number is even: a straggler's value is no other rank's.
Picoseconds lower_median(std::vector<Picoseconds> values) {
  const auto middle = values.begin() + (static_cast<std::ptrdiff_t>(values.size()) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::set<TimeKey> keys_of(const MeasuredRank& rank) {
  std::set<TimeKey> keys;
  for (const Account* account : {&rank.expected, &rank.measured})
    for (const auto& [key, time] : *account) keys.insert(key);
  return keys;
}

// Returns for each kind of operations, where some have kernels, the share of its predicted time that has none.
std::map<std::string, double> missing_shares(const Schedule& schedule, const MeasuredRank& rank) {
  std::set<std::int64_t> found;
  for (const PlacedKernel& placed : rank.placed.kernels) found.insert(placed.op);
  std::map<std::string, std::pair<double, double>> times;  // [name] predicted, and of it without kernels
  for (const TimelineRow* row : rank.predicted.rows) {
    if (row == nullptr || is_communication(rank.program.work_of(row->op))) continue;
    auto& [all, missing] = times[without_part(schedule.operations[rank.program.ops[row->op].op].name)];
    all += double(row->end - row->start);
    if (!found.contains(row->op)) missing += double(row->end - row->start);
  }
  std::map<std::string, double> shares;
  for (const auto& [name, time] : times)
    if (time.second > 0 && time.second < time.first) shares[name] = time.second / time.first;
  return shares;
}

std::vector<Gap> gaps_of(const Schedule& schedule, const MeasuredRank& rank, const std::vector<MeasuredRank>& ranks) {
  const std::vector<const MeasuredRank*> others = like(ranks, rank);
  const std::map<std::string, double> missing = missing_shares(schedule, rank);
  std::vector<Gap> gaps;
  Picoseconds late = 0, most = 0;
  TimeKey most_late;
  for (const TimeKey& key : keys_of(rank)) {
    const Picoseconds predicted = value_of(rank.expected, key), measured = value_of(rank.measured, key);
    Picoseconds common = measured;
    if (is_own(key.part) && !others.empty()) {
      std::vector<Picoseconds> values;
      for (const MeasuredRank* other : others) values.push_back(value_of(other->measured, key));
      common = lower_median(std::move(values));
      late += measured - common;
      if (measured - common > most) most = measured - common, most_late = key;
    }
    if (common == predicted) continue;
    if (const auto share = missing.find(key.name);
        key.part == Part::kernel && share != missing.end() && std::max(measured, common) > 0) {
      const double missing_ms = share->second * to_ms(predicted), rest_ms = to_ms(predicted) - missing_ms;
      // Kernels that have grown by much of what is missing are whole where the schedule cuts: one line for both.
      constexpr double kWhole = 0.5;
      if (to_ms(common) - rest_ms > kWhole * missing_ms) {
        gaps.push_back({Cause::slower_kernel, key.name, to_ms(predicted), to_ms(common), to_ms(common - predicted),
                        fmt::format("{:.3g} % of its predicted time has no kernel of its own: other kernels have it",
                                    100 * share->second),
                        ""});
        continue;
      }
      gaps.push_back({Cause::missing_kernel, key.name, missing_ms, 0, -missing_ms,
                      fmt::format("{:.3g} % of its predicted time has no kernel", 100 * share->second), ""});
      gaps.push_back({Cause::slower_kernel, key.name, rest_ms, to_ms(common), to_ms(common) - rest_ms, "", ""});
      continue;
    }
    gaps.push_back({cause_of(key, std::max(measured, common)), name_of_gap(key), to_ms(predicted), to_ms(common),
                    to_ms(common - predicted), "", "", key.communicator});
  }
  if (late != 0)
    gaps.push_back(
        {Cause::straggler, fmt::format("rank {}", rank.rank()), 0, to_ms(late), to_ms(late),
         most > 0 ? fmt::format("most in {}: {:.3g} ms more than other ranks", name_of_gap(most_late), to_ms(most))
                  : "",
         "", kNoCommunicator, true});
  return gaps;
}

// The gaps of a trace without a period: matched kernels against their predicted lengths, and kernels that the schedule
// does not have.
std::vector<Gap> gaps_of_kernels(const MeasuredRank& rank, const std::vector<OperationLength>& lengths) {
  std::vector<Gap> gaps;
  for (const OperationLength& of : lengths) {
    if (of.calls == 0) continue;
    const double predicted = double(of.calls) * of.predicted_us * 1e-3,
                 measured = double(of.calls) * of.measured_us * 1e-3;
    gaps.push_back({Cause::slower_kernel, of.name, predicted, measured, measured - predicted, "", ""});
  }
  for (const auto& [key, time] : rank.measured)
    if (key.part == Part::unscheduled)
      gaps.push_back({Cause::unscheduled_kernel, key.name, 0, to_ms(time), to_ms(time), "", ""});
  return gaps;
}

std::vector<OperationLength> lengths_of(const Schedule& schedule, const MeasuredRank& rank) {
  struct Sums {
    Picoseconds predicted = 0, measured = 0;
    std::set<std::int64_t> ops;
    std::int64_t kernels = 0;
  };
  std::vector<Sums> sums(schedule.operations.size());
  for (const PlacedKernel& placed : rank.placed.kernels) {
    if (placed.op == kNoOperation) continue;
    const trace::Kernel& kernel = rank.kernel(placed);
    Sums& of = sums[rank.program.ops[static_cast<std::uint32_t>(placed.op)].op];
    const bool moves = trace::is_communication(kernel.cls);
    of.measured += moves ? kernel.end - kernel.waited_for_joined - placed.transfer : kernel.length();
    ++of.kernels;
    if (!of.ops.insert(placed.op).second) continue;
    if (const TimelineRow* row = rank.predicted.rows[static_cast<std::uint32_t>(placed.op)])
      of.predicted += row->moved() - row->transfer;
  }
  std::vector<OperationLength> lengths;
  for (OpId op = 0; op < sums.size(); ++op) {
    const Sums& of = sums[op];
    if (of.ops.empty()) continue;
    const double calls = double(of.ops.size());
    lengths.push_back({schedule.operations[op].name, describe(schedule.operations[op].work), std::ssize(of.ops),
                       of.kernels, to_us(of.predicted) / calls, to_us(of.measured) / calls});
  }
  std::stable_sort(lengths.begin(), lengths.end(), [](const OperationLength& a, const OperationLength& b) {
    return double(a.calls) * a.predicted_us > double(b.calls) * b.predicted_us;
  });
  return lengths;
}

void add_details(std::vector<Gap>& gaps, const std::vector<OperationLength>& lengths) {
  for (Gap& gap : gaps) {
    if (gap.cause != Cause::slower_kernel) continue;
    const auto of = std::find_if(lengths.begin(), lengths.end(), [&](const auto& l) { return l.name == gap.name; });
    if (of == lengths.end() || !gap.detail.empty()) continue;
    gap.detail = fmt::format("{} calls of {:.4g} us, predicted {:.4g}", of->calls, of->measured_us, of->predicted_us);
    if (of->kernels > of->calls)
      gap.detail += fmt::format(", {:.1f} kernels each", double(of->kernels) / double(of->calls));
  }
}

// Returns the share of idle time on the compute stream whose end is a kernel that was launched after the idle time had
// begun; below 0 where the trace has no launches.
double launched_late(const MeasuredRank& rank) {
  const std::uint32_t compute = compute_stream(*rank.trace);
  Picoseconds idle = 0, late = 0, end = rank.period.begin;
  bool knows = false;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const trace::Kernel& kernel = rank.kernel(placed);
    if (kernel.stream != compute) continue;
    knows = knows || kernel.launched != trace::kNoTime;
    if (kernel.start > end) {
      idle += kernel.start - end;
      if (kernel.launched != trace::kNoTime && kernel.launched > end) late += kernel.start - end;
    }
    end = std::max(end, kernel.end);
  }
  return !knows ? -1 : idle == 0 ? 0 : double(late) / double(idle);
}

}  // namespace

const char* name_of(Cause cause) {
  constexpr std::array kNames = {"slower kernel",  "exposed communication", "waiting for the host",
                                 "straggler",      "unscheduled kernel",    "moved kernel",
                                 "missing kernel", "waiting for cores"};
  static_assert(kNames.size() == kCauses);
  return kNames[static_cast<std::size_t>(cause)];
}

Diagnosis explain(const Schedule& schedule, const std::vector<MeasuredRank>& ranks, const std::string& scenario,
                  bool on_gpu) {
  Diagnosis diagnosis;
  diagnosis.matched = matched_share(ranks);
  require_fit(schedule, ranks, diagnosis.matched, scenario);
  const MeasuredRank& rank = *std::max_element(
      ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return growth_of(a) < growth_of(b); });
  diagnosis.rank = rank.rank();
  diagnosis.traced_ranks = std::ssize(ranks);
  diagnosis.is_whole = rank.period.is_whole;
  diagnosis.predicted_ms = to_ms(rank.predicted.period);
  diagnosis.measured_ms = to_ms(rank.length());
  for (const Period& period : rank.periods) diagnosis.steps_ms.push_back(to_ms(period.end - period.begin));
  diagnosis.kernels = std::ssize(rank.placed.kernels);
  diagnosis.operations = std::ssize(rank.program.ops);
  std::set<std::int64_t> matched;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    diagnosis.matched_kernels += placed.op != kNoOperation;
    if (placed.op != kNoOperation && matched.insert(placed.op).second) diagnosis.matched_operations += placed.group;
  }
  diagnosis.lengths = lengths_of(schedule, rank);
  diagnosis.predicted = predicted_observables(rank);
  diagnosis.measured = measured_observables(rank);
  diagnosis.communication = communication_calls(schedule, rank);
  diagnosis.gaps = diagnosis.is_whole ? gaps_of(schedule, rank, ranks) : gaps_of_kernels(rank, diagnosis.lengths);
  if (diagnosis.is_whole) join_moved(schedule, rank, diagnosis.gaps);
  std::stable_sort(diagnosis.gaps.begin(), diagnosis.gaps.end(),
                   [](const Gap& a, const Gap& b) { return a.gap_ms > b.gap_ms; });
  add_details(diagnosis.gaps, diagnosis.lengths);
  for (Gap& gap : diagnosis.gaps) {
    diagnosis.of_cause[static_cast<std::size_t>(gap.cause)] += gap.gap_ms;
    gap.advice = advice_for(gap, schedule, on_gpu);
  }
  diagnosis.streams = rank.placed.streams;
  if (const double late = launched_late(rank); late >= 0)
    diagnosis.notes.push_back(fmt::format(
        "{:.0f} % of the compute stream's idle time ends with a kernel that the host launched after it had begun",
        100 * late));
  if (!diagnosis.is_whole)
    diagnosis.notes.push_back(
        "no step repeats in the trace: kernels are compared, and neither the step nor what it waits for. Trace two "
        "steps "
        "or more, or call profiler.step()");
  if (const auto expected = static_cast<std::int64_t>(schedule.mesh.ranks());
      rank.trace->ranks > 0 && rank.trace->ranks != expected)
    diagnosis.notes.push_back(
        fmt::format("the trace is of a run of {} ranks, and the scenario has {}", rank.trace->ranks, expected));
  if (!rank.trace->says_rank)
    diagnosis.notes.push_back(fmt::format("the trace does not say its rank: taken as rank {} (--rank)", rank.rank()));
  return diagnosis;
}

}  // namespace stretto::diagnose
