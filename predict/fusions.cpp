#include "predict/fusions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "model/scenario/given_keys.hpp"
#include "model/schedule/bind.hpp"
#include "predict/inputs.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::predict {
namespace {

struct Fusion {
  const char* knob;
  bool Training::*value;
  bool is_epilogue;  // epilogue of a GEMM; tuning uses a separate kernel where that is faster, so it costs nothing
  bool Training::*needs = nullptr;
};
// A fusion comes after the one that it needs.
constexpr std::array<Fusion, 5> kFusions = {{
    {"gelu_fusion", &Training::gelu_fusion, true},
    {"bias_gradient_fusion", &Training::bias_gradient_fusion, true},
    {"residual_fusion", &Training::residual_fusion, true},
    {"norm_gradient_fusion", &Training::norm_gradient_fusion, false},
    // The epilogue that it replaces in fc1's weight gradient may have cost nothing there.
    {"gelu_bias_gradient_fusion", &Training::gelu_bias_gradient_fusion, false, &Training::gelu_fusion},
}};

// Returns whether the scenario lets the fusion act.
bool is_possible(const Schedule& with, const char* knob) {
  return std::none_of(with.notes.begin(), with.notes.end(),
                      [&](const std::string& note) { return note.starts_with(std::string(knob) + " is off"); });
}

// Share of all compute. A smaller saving is rounding of fitted costs.
constexpr double kLeastSaved = 1e-4;

double compute_ms(const Schedule& schedule, const sim::Platform& platform, const Cluster& cluster) {
  const sim::Costs costs = sim::cost_schedule(schedule, platform, cluster);
  Picoseconds total = 0;
  for (const BoundOp& op : bind(schedule, 0).ops) total += costs.compute[op.op].alone;
  return to_ms(total);
}

}  // namespace

void Fusions::apply(Scenario& scenario) const {
  for (std::size_t i = 0; i < on.size(); ++i)
    if (on[i]) scenario.training.*kFusions[i].value = true;
}

Fusions choose_fusions(const Scenario& scenario, const std::set<std::string>& given, const sim::Platform* platform) {
  Fusions fusions;
  fusions.on.resize(kFusions.size());
  if (platform != nullptr && !platform->gpu) return fusions;
  std::string chosen;
  double whole_ms = -1;  // without any fusion
  for (std::size_t i = 0; i < kFusions.size(); ++i) {
    const Fusion& fusion = kFusions[i];
    if (given.contains(fusion.knob)) continue;
    Scenario base = scenario;
    if (fusion.needs != nullptr) fusions.apply(base);
    Scenario with = base;
    with.training.*fusion.value = true;
    const Schedule schedule = build_schedule(with, free_memory_bytes());
    if (!is_possible(schedule, fusion.knob)) continue;
    std::string why;
    if (platform != nullptr) {
      if (whole_ms < 0)
        whole_ms = compute_ms(build_schedule(scenario, free_memory_bytes()), *platform, scenario.cluster);
      const double without_ms =
          fusion.needs == nullptr ? whole_ms
                                  : compute_ms(build_schedule(base, free_memory_bytes()), *platform, scenario.cluster);
      const double saved_ms = without_ms - compute_ms(schedule, *platform, scenario.cluster);
      fusions.on[i] = saved_ms > kLeastSaved * without_ms;
      why = fusions.on[i] ? fmt::format("saves {:.3g} ms of {:.3g} ms compute", saved_ms, without_ms) : "not faster";
    } else {
      fusions.on[i] = fusion.is_epilogue;
      why = fusion.is_epilogue ? "apart where tuning finds that faster"
                               : "not measured; stretto calibrate --backend cuda does that";
    }
    chosen += fmt::format("{}{} {} ({})", chosen.empty() ? "" : ", ", fusion.knob, fusions.on[i] ? "on" : "off", why);
  }
  if (!chosen.empty())
    fusions.note = fmt::format("fusions that the scenario leaves open{}: {}",
                               platform != nullptr ? ", as measured by platform " + platform->name : "", chosen);
  return fusions;
}

Fusions open_fusions(const Scenario& scenario, const std::string& given, const std::vector<std::string>& set,
                     const sim::Platform& platform) {
  if (!platform.gpu) return {};
  return choose_fusions(scenario, given_keys(scenario_path(given), set, "training"), &platform);
}

std::uint32_t bits_of(const Fusions& fusions) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < fusions.on.size(); ++i) bits |= std::uint32_t{fusions.on[i]} << i;
  return bits;
}

Fusions fusions_of(std::uint32_t bits, std::string note) {
  Fusions fusions{{}, std::move(note)};
  for (std::size_t i = 0; i < kFusions.size(); ++i) fusions.on.push_back((bits >> i & 1) != 0);
  return fusions;
}

}  // namespace stretto::predict
