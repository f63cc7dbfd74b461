#include "diagnose/moved.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "diagnose/kinds.hpp"

namespace stretto::diagnose {
namespace {

// Kernels that take more than this times as long as the operations are others.
constexpr double kMostRatio = 3;

struct Moved {
  std::vector<std::size_t> kernels, operations;  // indices into gaps
  double measured_ms = 0, predicted_ms = 0;
};

std::map<std::string, trace::KernelClass> unscheduled_classes(const MeasuredRank& rank) {
  std::map<std::string, trace::KernelClass> classes;
  for (const PlacedKernel& placed : rank.placed.kernels)
    if (const trace::Kernel& kernel = rank.kernel(placed);
        placed.op == kNoOperation && !trace::is_communication(kernel.cls) && kernel.cls != trace::KernelClass::other)
      classes.try_emplace(short_name(rank.trace->name_of(kernel)), kernel.cls);
  return classes;
}

std::map<std::string, const Operation*> operations_by_name(const Schedule& schedule, const BoundProgram& program) {
  std::map<std::string, const Operation*> operations;
  for (const BoundOp& op : program.ops)
    operations.try_emplace(without_part(schedule.operations[op.op].name), &schedule.operations[op.op]);
  return operations;
}

Gap joined(const std::vector<Gap>& gaps, const Moved& of, trace::KernelClass cls) {
  std::string names;
  for (const std::size_t at : of.operations) names += (names.empty() ? "" : ", ") + gaps[at].name;
  Gap gap;
  gap.cause = Cause::moved_kernel;
  gap.name = names;
  gap.predicted_ms = of.predicted_ms;
  gap.measured_ms = of.measured_ms;
  for (const auto* side : {&of.kernels, &of.operations})
    for (const std::size_t at : *side) gap.gap_ms += gaps[at].gap_ms;
  gap.detail = fmt::format("{} runs in another place of the step than the schedule has it: {}", trace::name_of(cls),
                           gaps[of.kernels.front()].name);
  return gap;
}

}  // namespace

void join_moved(const Schedule& schedule, const MeasuredRank& rank, std::vector<Gap>& gaps) {
  const auto classes = unscheduled_classes(rank);
  const auto operations = operations_by_name(schedule, *rank.predicted.program);
  std::map<trace::KernelClass, Moved> moved;
  for (std::size_t i = 0; i < gaps.size(); ++i)
    if (const auto cls = classes.find(gaps[i].name);
        gaps[i].cause == Cause::unscheduled_kernel && cls != classes.end()) {
      moved[cls->second].kernels.push_back(i);
      moved[cls->second].measured_ms += gaps[i].measured_ms;
    }
  std::set<std::size_t> gone;
  std::vector<Gap> added;
  for (auto& [cls, of] : moved) {
    for (std::size_t i = 0; i < gaps.size(); ++i) {
      const auto operation = operations.find(gaps[i].name);
      if (gaps[i].cause != Cause::missing_kernel || gone.contains(i) || operation == operations.end()) continue;
      if (fit_of(*operation->second, cls).first < 1) continue;
      of.operations.push_back(i);
      of.predicted_ms += gaps[i].predicted_ms;
    }
    if (of.operations.empty() || of.measured_ms > kMostRatio * of.predicted_ms ||
        of.predicted_ms > kMostRatio * of.measured_ms)
      continue;
    added.push_back(joined(gaps, of, cls));
    gone.insert(of.kernels.begin(), of.kernels.end());
    gone.insert(of.operations.begin(), of.operations.end());
  }
  std::vector<Gap> kept;
  for (std::size_t i = 0; i < gaps.size(); ++i)
    if (!gone.contains(i)) kept.push_back(std::move(gaps[i]));
  for (Gap& gap : added) kept.push_back(std::move(gap));
  gaps = std::move(kept);
}

}  // namespace stretto::diagnose
