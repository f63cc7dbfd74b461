#include "diagnose/observables.hpp"

#include <algorithm>
#include <map>

#include "base/statistics.hpp"
#include "trace/busy.hpp"

namespace stretto::diagnose {
namespace {

using trace::Busy;

double host_ms_of(const Account& account) {
  double ms = 0;
  for (const auto& [key, time] : account)
    if (key.part == Part::host) ms += to_ms(time);
  return ms;
}

struct Lanes {
  std::vector<Busy::Interval> computing, moving;
};

Lanes measured_lanes(const MeasuredRank& rank) {
  Lanes lanes;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const trace::Kernel& kernel = rank.kernel(placed);
    if (!trace::is_communication(kernel.cls))
      lanes.computing.push_back({kernel.start, kernel.end});
    else if (const Picoseconds end = kernel.end - kernel.waited_for_joined; placed.transfer < end)
      lanes.moving.push_back({placed.transfer, end});
  }
  return lanes;
}

Observables observables_of(Lanes lanes, const Account& account) {
  const Busy compute(std::move(lanes.computing)), communication(std::move(lanes.moving));
  return {to_ms(communication.total()), to_ms(communication.common(compute)), host_ms_of(account)};
}

}  // namespace

Observables predicted_observables(const MeasuredRank& rank) {
  Lanes lanes;
  for (const TimelineRow* row : rank.predicted.rows) {
    if (row == nullptr) continue;
    if (!is_communication(rank.program.work_of(row->op)))
      lanes.computing.push_back({row->start, row->end});
    else if (row->transfer < row->moved())
      lanes.moving.push_back({row->transfer, row->moved()});
  }
  return observables_of(std::move(lanes), rank.expected);
}

Observables measured_observables(const MeasuredRank& rank) {
  return observables_of(measured_lanes(rank), rank.measured);
}

std::vector<CommunicationCalls> communication_calls(const Schedule& schedule, const MeasuredRank& rank) {
  struct Sums {
    std::int64_t calls = 0;
    double predicted_us = 0, measured_us = 0, hidden_us = 0;
  };
  struct Lengths {
    std::string name;
    std::vector<double> alone, concurrent;
  };
  const Busy compute(measured_lanes(rank).computing);
  std::map<std::string, Sums> sums;
  std::map<OpId, Lengths> lengths;  // calls of one operation have as many bytes
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const trace::Kernel& kernel = rank.kernel(placed);
    if (placed.op == kNoOperation || !trace::is_communication(kernel.cls)) continue;
    const auto op = static_cast<std::uint32_t>(placed.op);
    const Operation& operation = schedule.operations[rank.program.ops[op].op];
    const std::string name = key_of_communication(schedule, operation).name;
    const Picoseconds begin = placed.transfer, end = kernel.end - kernel.waited_for_joined;
    const double us = to_us(end - begin), share = compute.share_of(begin, end);
    Sums& of = sums[name];
    ++of.calls;
    of.measured_us += us;
    of.hidden_us += us * share;
    if (const TimelineRow* row = rank.predicted.rows[op]) of.predicted_us += to_us(row->moved() - row->transfer);
    Lengths& equal = lengths[rank.program.ops[op].op];
    equal.name = name;
    if (share >= trace::kConcurrent) equal.concurrent.push_back(us);
    if (share <= 1 - trace::kConcurrent) equal.alone.push_back(us);
  }
  std::map<std::string, std::pair<double, double>> stretch;  // [name] concurrent and alone, of as many calls
  for (const auto& [op, equal] : lengths) {
    if (equal.alone.empty() || equal.concurrent.empty()) continue;
    stretch[equal.name].first += median(equal.concurrent) * double(equal.concurrent.size());
    stretch[equal.name].second += median(equal.alone) * double(equal.concurrent.size());
  }
  std::vector<CommunicationCalls> found;
  for (const auto& [name, of] : sums) {
    const auto& [concurrent, alone] = stretch[name];
    found.push_back({name, of.calls, of.predicted_us / double(of.calls), of.measured_us / double(of.calls),
                     of.measured_us > 0 ? of.hidden_us / of.measured_us : 0, alone > 0 ? concurrent / alone : 0});
  }
  std::stable_sort(found.begin(), found.end(), [](const CommunicationCalls& a, const CommunicationCalls& b) {
    return double(a.calls) * a.measured_us > double(b.calls) * b.measured_us;
  });
  return found;
}

}  // namespace stretto::diagnose
