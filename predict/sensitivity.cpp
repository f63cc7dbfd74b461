#include "predict/sensitivity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "predict/constants.hpp"
#include "predict/quick_step.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/step_gradient.hpp"

namespace stretto::predict {
namespace {

constexpr double kShare = 0.01;        // by which a number is changed for a step that is simulated
constexpr double kSmallShare = 0.001;  // by which it is changed for costs alone

// A machine on which a step is simulated.
struct Machine {
  sim::Platform platform;
  Framework framework;
};

struct Way {
  const char* name;
  void (*change)(Machine&);
};
constexpr std::array kWays = {
    Way{"twice the rate of NVLink", [](Machine& m) { m.platform.accelerator->nvlink.GBps.value *= 2; }},
    Way{"twice the rate of the network", [](Machine& m) { m.platform.accelerator->network.GBps.value *= 2; }},
    Way{"half the latency of links",
        [](Machine& m) {
          m.platform.accelerator->nvlink.latency_us.value /= 2;
          m.platform.accelerator->network.latency_us.value /= 2;
          m.platform.accelerator->collective_latency.value /= 2;
        }},
    Way{"twice the rate of memory", [](Machine& m) { m.platform.accelerator->hbm_GBps.value *= 2; }},
    Way{"products in half of their time",
        [](Machine& m) {
          sim::Accelerator& a = *m.platform.accelerator;
          for (Quantity* of : {&a.gemm_sustained, &a.fp8.gemm_sustained, &a.fp8_block.gemm_sustained,
                               &a.mxfp8.gemm_sustained, &a.nvfp4.gemm_sustained})
            of->value /= 2;
          if (m.framework.gemm_sustained) m.framework.gemm_sustained->value /= 2;
        }},
    Way{"attention in half of its time",
        [](Machine& m) {
          for (sim::AttentionKernel& kernel : m.platform.accelerator->attention)
            kernel.forward_TFLOPs.value *= 2, kernel.backward_TFLOPs.value *= 2;
          m.platform.accelerator->bmm_share.value *= 2;  // of unfused attention
          if (m.framework.bmm_share) m.framework.bmm_share->value *= 2;
        }},
    Way{"a host that issues twice as fast", [](Machine& m) {
          m.framework.host.python.value /= 2;
          m.framework.host.cpp_us.value /= 2;
        }}};

void require_published(const sim::Platform& platform) {
  if (!platform.accelerator)
    throw input_error("--limits: expected a published GPU, got " + platform.name +
                      ": a calibrated machine's costs are fits, which have no single numbers");
}

// Returns the steps on machines, in seconds.
std::vector<double> steps_on(const Scenario& scenario, const std::vector<Machine>& machines) {
  const QuickStep step(scenario);
  std::vector<double> steps_s(machines.size());
  std::vector<std::exception_ptr> failures(machines.size());
  parallel_each(std::ssize(machines), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    try {
      steps_s[i] = step.step_s(machines[i].platform, machines[i].framework);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return steps_s;
}

// Returns the numbers that are not 0, with no derivative yet.
std::vector<Sensitivity> numbers_of(const Scenario& scenario, const sim::Platform& platform) {
  Machine machine{platform, scenario.framework};
  std::vector<Sensitivity> numbers;
  for (const Constant& constant : constants_of(*machine.platform.accelerator, machine.framework))
    if (const double value = constant.quantity->value; value != 0)
      numbers.push_back({constant.name, value, constant.quantity->source.kind, 0});
  return numbers;
}

// Returns [number] the derivatives by the gradient of one simulated step; empty where they do not follow from its rows,
// with the reason in `why_not`.
std::vector<double> by_gradient(const Scenario& scenario, const sim::Platform& platform, std::string& why_not) {
  const QuickStep quick(scenario);
  const ExtrapolatedStep extrapolated = quick.extrapolate(platform, scenario.framework);
  if (!extrapolated.result.steady) {
    why_not = "its steps have no steady period";
    return {};
  }
  const Schedule& schedule = *extrapolated.schedule;
  Machine machine{platform, scenario.framework};
  const auto costs_now = [&] {
    return sim::cost_schedule(schedule, machine.platform, scenario.cluster, 1, machine.framework, scenario.training);
  };
  const sim::Costs costs = costs_now();
  const IssueOrder& issued = extrapolated.bound != nullptr ? extrapolated.bound->issued : extrapolated.result.issued;
  const auto flat_with = [&](const sim::Costs& of) {
    return sim::flatten_all(schedule, extrapolated.programs(), of, issued.partners);
  };
  const auto flat = flat_with(costs);
  const sim::SimInputs inputs{schedule, costs, extrapolated.programs(), flat, issued.partners};
  const std::optional<sim::StepGradient> gradient = sim::gradient_of(
      inputs, extrapolated.result.timeline, extrapolated.result.round, extrapolated.rounds.times, &why_not);
  if (!gradient) return {};
  std::vector<double> derivatives;
  for (const Constant& constant : constants_of(*machine.platform.accelerator, machine.framework)) {
    const double value = constant.quantity->value;
    if (value == 0) continue;
    constant.quantity->value = value * (1 - kSmallShare);
    const sim::Costs less = costs_now();
    constant.quantity->value = value * (1 + kSmallShare);
    const sim::Costs more = costs_now();
    constant.quantity->value = value;
    double longer = gradient->change(less, more);
    if (less.host != more.host) longer += gradient->change(inputs, flat_with(less), flat_with(more));
    derivatives.push_back(longer / static_cast<double>(extrapolated.step()) / (2 * kSmallShare));
  }
  return derivatives;
}

// Returns [number] the derivatives by the central difference of two simulated steps.
std::vector<double> by_differences(const Scenario& scenario, const sim::Platform& platform) {
  Machine machine{platform, scenario.framework};
  std::vector<Machine> machines;  // two for each number: it is lower, and higher
  for (const Constant& constant : constants_of(*machine.platform.accelerator, machine.framework)) {
    const double value = constant.quantity->value;
    if (value == 0) continue;
    for (const double factor : {1 - kShare, 1 + kShare}) {
      constant.quantity->value = value * factor;
      machines.push_back(machine);
    }
    constant.quantity->value = value;
  }
  const std::vector<double> steps_s = steps_on(scenario, machines);
  std::vector<double> derivatives;
  for (std::size_t i = 0; i < steps_s.size(); i += 2)
    derivatives.push_back(std::log(steps_s[i + 1] / steps_s[i]) / std::log((1 + kShare) / (1 - kShare)));
  return derivatives;
}

}  // namespace

std::vector<Sensitivity> sensitivities_of(const Scenario& scenario, const sim::Platform& platform,
                                          std::string* why_simulated) {
  require_published(platform);
  std::string why_not;
  std::vector<Sensitivity> found = numbers_of(scenario, platform);
  std::vector<double> derivatives = by_gradient(scenario, platform, why_not);
  if (derivatives.empty()) derivatives = by_differences(scenario, platform);
  if (why_simulated) *why_simulated = why_not;
  for (std::size_t i = 0; i < found.size(); ++i) found[i].pct_per_pct = derivatives[i];
  // Times are rounded to picoseconds, and a steady step to 1e-6 (docs/simulation.md).
  std::erase_if(found, [](const Sensitivity& s) { return std::abs(s.pct_per_pct) < 2e-4; });
  std::stable_sort(found.begin(), found.end(), [](const Sensitivity& a, const Sensitivity& b) {
    return std::abs(a.pct_per_pct) > std::abs(b.pct_per_pct);
  });
  return found;
}

std::vector<BetterMachine> better_machines(const Scenario& scenario, const sim::Platform& platform) {
  require_published(platform);
  std::vector<Machine> machines;
  for (const Way& way : kWays) way.change(machines.emplace_back(Machine{platform, scenario.framework}));
  const std::vector<double> steps_s = steps_on(scenario, machines);
  std::vector<BetterMachine> better;
  for (std::size_t i = 0; i < machines.size(); ++i) better.push_back({kWays[i].name, 1e3 * steps_s[i]});
  std::stable_sort(better.begin(), better.end(),
                   [](const BetterMachine& a, const BetterMachine& b) { return a.step_ms < b.step_ms; });
  return better;
}

Sheet sensitivity_sheet(const std::vector<Sensitivity>& sensitivities) {
  return {sensitivities, std::vector<Column<Sensitivity>>{
                             {"number", "number", [](const Sensitivity& s) { return s.constant; }},
                             {"value", "value", [](const Sensitivity& s) { return s.value; },
                              [](const Sensitivity& s) { return fmt::format("{:.4g}", s.value); }},
                             {"kind", "source", [](const Sensitivity& s) { return s.kind; }},
                             {"pct_per_pct", "1 % more of it", [](const Sensitivity& s) { return s.pct_per_pct; },
                              [](const Sensitivity& s) { return fmt::format("{:+.3f} %", s.pct_per_pct); }}}};
}

Sheet machines_sheet(const std::vector<BetterMachine>& machines, double step_ms) {
  return {machines,
          std::vector<Column<BetterMachine>>{
              {"change", "a better machine", [](const BetterMachine& m) { return m.change; }},
              {"step_ms", "step", [](const BetterMachine& m) { return m.step_ms; },
               [](const BetterMachine& m) { return time_text(m.step_ms); }},
              {"saved_pct", "change", [=](const BetterMachine& m) { return 100 * (1 - m.step_ms / step_ms); },
               [=](const BetterMachine& m) { return fmt::format("{:+.1f} %", 100 * (m.step_ms / step_ms - 1)); }}}};
}

}  // namespace stretto::predict
