#include "predict/beyond_measured.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "predict/resolution.hpp"
#include "sim/accelerator/group_span.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/cost/evaluate.hpp"
#include "sim/cost/features.hpp"

namespace stretto::predict {
namespace {

constexpr double kMaterial = 0.1, kMaterialOfStep = kResolved;

// Returns [operation] its time alone in a step, over all ranks.
std::vector<double> times_of(const ExtrapolatedStep& extrapolated, const sim::Costs& costs) {
  const Schedule& schedule = *extrapolated.schedule;
  std::vector<double> times(schedule.operations.size());
  auto row = extrapolated.result.timeline.rows.begin();
  for (const BoundProgram& program : extrapolated.programs()) {
    std::vector<std::int64_t> calls(times.size());
    for (const BoundOp& op : program.ops) calls[op.op] += extrapolated.rounds.count(*row++);
    for (OpId op = 0; op < times.size(); ++op)
      times[op] += double(program.ranks) * double(calls[op]) *
                   double(is_communication(schedule.operations[op].work) ? costs.collective[op].movement.alone
                                                                         : costs.compute[op].alone);
  }
  return times;
}

// The time of all operations, and of those beyond the measurements.
struct Share {
  double all = 0, beyond = 0;
  void add(double time, bool is_beyond) {
    all += time;
    if (is_beyond) beyond += time;
  }
  bool is_material() const { return beyond > 0 && beyond >= kMaterial * all; }
  double pct() const { return 100 * beyond / all; }
};

std::string beyond_gemms(const Schedule& schedule, const std::vector<double>& times, const sim::GemmTable& table,
                         const std::string& platform) {
  if (table.empty()) return "";
  Share share;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> shapes, outside;
  double farthest = 1;
  for (std::size_t op = 0; op < times.size(); ++op) {
    const auto* gemm = std::get_if<Gemm>(&schedule.operations[op].work);
    if (gemm == nullptr || times[op] == 0) continue;
    const sim::ProductType type = sim::product_type_of(schedule, schedule.operations[op]);
    if (!table.has(type)) continue;
    const double beyond = table.beyond(double(gemm->m), double(gemm->n), double(gemm->k), type);
    share.add(times[op], beyond > 1);
    shapes.insert({gemm->m, gemm->n, gemm->k});
    if (beyond > 1) outside.insert({gemm->m, gemm->n, gemm->k});
    farthest = std::max(farthest, beyond);
  }
  if (!share.is_material()) return "";
  const auto range = [](const std::vector<double>& axis) {
    return fmt::format("{:g} to {:g}", axis.front(), axis.back());
  };
  return fmt::format(
      "{} of {} shapes of GEMMs, {:.0f} % of their time, are outside the table of {} (m {}, n {}, k {}), by up to "
      "{:.2g} times: their times are extrapolated",
      outside.size(), shapes.size(), share.pct(), platform, range(table.grid().m()), range(table.grid().n()),
      range(table.grid().k()), farthest);
}

// `step`: the sum over all ranks.
std::string beyond_groups(const Schedule& schedule, const std::vector<double>& times, double step,
                          const sim::Accelerator& accelerator) {
  double time = 0;
  std::int64_t most = 0, measured = 0;
  for (std::size_t op = 0; op < times.size(); ++op) {
    const auto* collective = std::get_if<Collective>(&schedule.operations[op].work);
    if (collective == nullptr) continue;
    const Communicator& of = schedule.communicators[collective->communicator];
    const std::int64_t known = accelerator.collectives.most_gpus(like_equal_slices(collective->kind));
    if (known == 0 || of.size <= known) continue;
    if (sim::span_of(schedule, of, accelerator.domain, accelerator.pod).nodes > 1) continue;
    time += times[op];
    std::tie(most, measured) = std::max(std::tuple(most, measured), std::tuple(of.size, known));
  }
  if (time == 0 || time < kMaterialOfStep * step) return "";
  return fmt::format(
      "collectives of up to {} GPUs of a domain, which alone take {:.0f} % of the step, are beyond the table, which "
      "has up to {}: their bandwidth is taken to stay",
      most, 100 * time / step, measured);
}

std::string beyond_attention(const Schedule& schedule, const std::vector<double>& times,
                             const sim::AttentionKernel& kernel) {
  Share heads, keys;
  std::int64_t head_dim = 0, most_keys = 0;
  for (std::size_t op = 0; op < times.size(); ++op) {
    const Work& work = schedule.operations[op].work;
    if (is_communication(work)) continue;
    const auto* attention = std::get_if<Attention>(&work);
    const bool is_other = attention != nullptr && attention->head_dim != kernel.head_dim;
    const bool is_long = attention != nullptr && attention->key_tokens() > 2 * kernel.most_keys;
    heads.add(times[op], is_other);
    keys.add(times[op], is_long);
    if (is_other) head_dim = attention->head_dim;
    if (is_long) most_keys = std::max(most_keys, attention->key_tokens());
  }
  std::string what;
  if (heads.is_material()) what = fmt::format("heads of {} elements, not {}", head_dim, kernel.head_dim);
  if (keys.is_material())
    what += fmt::format("{}{} keys, where at most {} were measured", what.empty() ? "" : "; and ", most_keys,
                        kernel.most_keys);
  if (what.empty()) return "";
  return fmt::format("attention, {:.0f} % of the kernels' time, has rates of {} and here {}",
                     std::max(heads.pct(), keys.pct()), kernel.name, what);
}

// Another kernel stands in for the one that the profile names.
std::string other_attention(const Schedule& schedule, const sim::Accelerator& accelerator, const std::string& platform,
                            const std::string& named) {
  const bool has_attention =
      std::any_of(schedule.operations.begin(), schedule.operations.end(),
                  [](const Operation& operation) { return std::holds_alternative<Attention>(operation.work); });
  const std::string& taken = accelerator.attention_named(named).name;
  if (!has_attention || named.empty() || taken == named) return "";
  return fmt::format(
      "attention: {0} has no rates of {1}, the profile's kernel; it is assumed that {2}, the default of {0}, runs "
      "there, as "
      "frameworks choose the kernel by the GPU",
      platform, named, taken);
}

std::string beyond_logs(const Schedule& schedule, const sim::Accelerator& accelerator) {
  constexpr std::int64_t kMostMembers = 1000;
  constexpr double kLargeBytes = 1 << 20;
  std::vector<bool> is_large(schedule.communicators.size());
  for (const Operation& operation : schedule.operations)
    if (const auto* collective = std::get_if<Collective>(&operation.work))
      if (2 * double(collective->elements) >= kLargeBytes) is_large[collective->communicator] = true;
  for (const sim::CollectiveTime& time : accelerator.collectives.times())
    if (time.span.nodes > 1 && time.span.members > kMostMembers) return "";
  std::int64_t most = 0;
  for (std::size_t c = 0; c < is_large.size(); ++c) {
    const Communicator& communicator = schedule.communicators[c];
    if (!is_large[c] || communicator.size <= std::max(most, kMostMembers)) continue;
    if (sim::span_of(schedule, communicator, accelerator.domain, accelerator.pod).nodes > 1) most = communicator.size;
  }
  if (most == 0) return "";
  return "collectives of " + std::to_string(most) +
         " GPUs take what NCCL's own model says: in logs, large ones of more than 1,000 took up to twice as long";
}

std::string beyond_cards(const sim::Accelerator& accelerator) {
  const double GBps = accelerator.network.GBps.value;
  if (GBps <= 200) return "";
  return fmt::format("[network] GBps = {:g} is {:g} Gbit/s a GPU: is it meant in Gbit/s?", GBps, 8 * GBps);
}

}  // namespace

std::vector<std::string> beyond_measured(const ExtrapolatedStep& extrapolated, const sim::Costs& costs,
                                         const sim::Platform& platform, const Framework& framework) {
  const Schedule& schedule = *extrapolated.schedule;
  const sim::Accelerator& accelerator = *platform.accelerator;
  const std::vector<double> times = times_of(extrapolated, costs);
  const double step = double(extrapolated.step()) * double(schedule.mesh.ranks());
  std::vector<std::string> notes = {
      beyond_gemms(schedule, times, accelerator.gemms, platform.name),
      beyond_groups(schedule, times, step, accelerator),
      beyond_attention(schedule, times, accelerator.attention_named(framework.attention_kernel)),
      other_attention(schedule, accelerator, platform.name, framework.attention_kernel),
      beyond_logs(schedule, accelerator),
      beyond_cards(accelerator)};
  std::erase(notes, "");
  return notes;
}

std::string beyond_calibrated(const Schedule& schedule, const sim::Platform& platform) {
  constexpr double kMostTimes = 10;
  std::set<std::string> beyond;
  std::string farthest;
  double most_times = kMostTimes;
  for (const Operation& operation : schedule.operations) {
    if (is_communication(operation.work)) continue;
    const sim::WorkCost whole = sim::work_cost(schedule, operation);
    for (const sim::WorkCost& cost : sim::known_as(platform, whole)) {
      const sim::CostFit& fit = platform.costs.at(cost.key);
      double largest_us = fit.largest_us;
      for (const sim::MeasuredPoint& point : fit.measured) largest_us = std::max(largest_us, point.us);
      const double us = sim::cost_us(platform, cost), times = largest_us > 0 ? us / largest_us : 0;
      if (times > kMostTimes) beyond.insert(cost.key);
      if (times <= most_times) continue;
      most_times = times;
      farthest = fmt::format("{} is predicted to take {:.4g} ms, {:.0f} times the longest that was calibrated",
                             operation.name, us / 1000, times);
    }
  }
  if (beyond.empty()) return "";
  return farthest + ": extrapolated" +
         (beyond.size() > 1 ? ", as are " + std::to_string(beyond.size() - 1) + " other cost functions" : "");
}

}  // namespace stretto::predict
