#include "validate/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/statistics.hpp"
#include "base/values_of.hpp"
#include "model/overlap/gates.hpp"
#include "model/step_size.hpp"
#include "model/training_flops.hpp"
#include "predict/constants.hpp"
#include "predict/predict_step.hpp"
#include "report/exposure.hpp"

namespace stretto::validate {
namespace {

// Returns false when the shipped constants stay unchanged.
bool reduce(sim::Accelerator& a, Framework& f, Fitted fitted) {
  if (fitted == Fitted::shipped) return false;
  bool is_changed = false;
  for (const predict::Constant& constant : predict::constants_of(a, f))
    if (constant.is_fitted() && constant.quantity->sourced) {
      constant.quantity->value = *constant.quantity->sourced;
      is_changed = true;
    }
  if (fitted == Fitted::sourced) return is_changed;
  f.gemm_sustained.reset();
  f.collective_in_step_us.reset();
  for (Quantity* sustained : {&a.gemm_sustained, &a.fp8.gemm_sustained, &a.fp8_block.gemm_sustained,
                              &a.mxfp8.gemm_sustained, &a.nvfp4.gemm_sustained})
    sustained->value = 1;
  a.collective_in_step_us.value = 0;
  f.host = {};
  return true;
}

// Sets the network that a row states for nodes: as many of the platform's cards as make up the rate.
void set_network(sim::Accelerator& a, double node_Gbps) {
  const double node_GBps = node_Gbps / 8, card_GBps = a.network.GBps.value;
  a.network_cards = std::clamp<std::int64_t>(std::llround(node_GBps / card_GBps), 1, a.domain);
  a.network.GBps.value = node_GBps / double(a.network_cards);
}

// Platforms of a run, with each network that rows state; each is read once.
class Platforms {
 public:
  void read(const ValidatedStep& step) {
    if (platforms_.contains(key_of(step))) return;
    sim::Platform platform = sim::read_platform(step.scenario.platform);
    if (step.published.node_Gbps > 0) set_network(*platform.accelerator, step.published.node_Gbps);
    platforms_.emplace(key_of(step), std::move(platform));
  }
  const sim::Platform& at(const ValidatedStep& step) const { return platforms_.at(key_of(step)); }

 private:
  using Key = std::pair<std::string, double>;
  static Key key_of(const ValidatedStep& step) { return {step.scenario.platform, step.published.node_Gbps}; }
  std::map<Key, sim::Platform> platforms_;
};

void predict_memory(ValidatedStep& step, const predict::QuickStep& quick, const sim::Platform& platform) {
  const DeviceMemory memory = quick.memory(platform);
  step.peak_bytes = step.published.hbm_of == "allocated"  ? memory.allocated_bytes()
                    : step.published.hbm_of == "reserved" ? memory.taken_bytes()
                                                          : memory.predicted_bytes();
  step.over_bytes = -memory.free_bytes();
}

// Predicts each reading of a step. Readings with one dispatcher share a schedule, which is built once.
void predict_readings(ValidatedStep& step, const predict::QuickStep& quick, const sim::Platform& platform) {
  std::string known;
  std::optional<predict::QuickStep> with_other;  // with the dispatcher `known`
  for (const PublishedStep::Reading& reading : step.published.readings) {
    const Scenario other = parse_scenario(reading.scenario_text, step.published.id);
    if (!reading.dispatcher.empty() && reading.dispatcher != known) with_other.emplace(other);
    if (!reading.dispatcher.empty()) known = reading.dispatcher;
    const predict::QuickStep& of = reading.dispatcher.empty() ? quick : *with_other;
    step.readings_s.push_back(of.step_s(platform, other.framework, other.training.expert_loads));
  }
}

void predict_published(ValidatedStep& step, const sim::Platform& shipped, bool with_interval) {
  const Scenario& scenario = step.scenario;
  const predict::QuickStep quick(scenario);
  predict_memory(step, quick, shipped);
  const sim::Costs shipped_costs = quick.costs(shipped, scenario.framework);
  for (const Fitted fitted : {Fitted::shipped, Fitted::sourced, Fitted::nothing}) {
    sim::Platform platform = shipped;
    Framework framework = scenario.framework;
    double& predicted_s = step.predicted_s[static_cast<std::size_t>(fitted)];
    if (!reduce(*platform.accelerator, framework, fitted) && fitted != Fitted::shipped) {
      predicted_s = step.predicted(Fitted::shipped);
      continue;
    }
    if (fitted != Fitted::shipped) {
      // A constant that no operation asks for changes no cost.
      const sim::Costs costs = quick.costs(platform, framework);
      predicted_s =
          costs == shipped_costs ? step.predicted(Fitted::shipped) : quick.step_s(platform, framework, {}, &costs);
      continue;
    }
    const predict::ExtrapolatedStep extrapolated = quick.extrapolate(platform, framework);
    const Breakdown b = extrapolated.mean();
    const double step_ms = to_ms(extrapolated.step());
    predicted_s = step_ms * 1e-3;
    step.active_s = 1e-3 * to_ms(extrapolated.active());
    step.hidden_s = std::max(0.0, step.active_s - 1e-3 * to_ms(b.exposed_total));
    step.limits = {{"compute", to_ms(b.compute) / step_ms}, {"waiting", to_ms(b.bubble) / step_ms}};
    for (std::size_t c = 0; c < b.exposed.size(); ++c)
      step.limits.push_back({"exposed " + quick.schedule().communicators[c].name, to_ms(b.exposed[c]) / step_ms});
    std::stable_sort(step.limits.begin(), step.limits.end(),
                     [](const auto& x, const auto& y) { return x.second > y.second; });
  }
  const double flops = training_flops_per_sequence(scenario.model, scenario.training.frozen_base).model *
                       double(scenario.training.global_batch_size);
  step.mfu = flops / step.published.step_s /
             predict::peak_of(shipped, scenario.cluster, quick.schedule(), step.published.gpus).FLOPs_per_s;
  predict_readings(step, quick, shipped);
  if (!with_interval) return;
  step.spread = predict::spread_of(quick, shipped, scenario.framework, step.predicted(Fitted::shipped));
  predict::add_containers(step.spread);
}

// Returns why a mode with which the row says it ran is off in its scenario; "": all act. The prediction would be that
// of the row without the mode. Where a group has one rank the mode has nothing to do in the framework either.
std::string own_mode_off(ValidatedStep& step) {
  if (step.published.own_modes.empty()) return "";
  const Gates gates = gates_of(step.scenario);
  for (const Gate& gate : gates.all()) {
    if (!step.published.own_modes.contains(gate.knob) || gate.open) continue;
    if (!gate.of_size) return fmt::format("its own {} is off here: {}", gate.knob, gate.reason());
    step.published.assumptions.push_back(fmt::format("{} without effect: {}", gate.knob, gate.reason()));
  }
  return "";
}

// Returns the memory that a row's prediction takes, estimated in whole bytes.
double bytes_of(const Scenario& scenario) {
  const std::int64_t few = predict::micro_batches_to_simulate(scenario).front();
  return std::ceil(step_size_of(predict::with_micro_batches(scenario, few)).bytes);
}

ValidatedGroup::Errors errors_of(const std::vector<double>& errors) {
  ValidatedGroup::Errors result;
  if (errors.empty()) return result;
  std::vector<double> sizes;
  for (const double error : errors) {
    sizes.push_back(std::abs(error));
    result.mean_abs += std::abs(error) / double(errors.size());
    result.bias += error / double(errors.size());
    if (std::abs(error) > std::abs(result.worst)) result.worst = error;
  }
  result.median_abs = median(sizes);
  return result;
}

// Predicts a row's time by the mean MFU of the other rows of its group, as a person without a model would.
void predict_by_mfu(std::vector<ValidatedStep>& steps, const ValidatedGroup& group) {
  for (const std::size_t s : group.steps) {
    double others = 0;
    int count = 0;
    for (const std::size_t other : group.steps)
      if (steps[other].published.cluster != steps[s].published.cluster) others += steps[other].mfu, ++count;
    if (count > 0) steps[s].constant_mfu_s = steps[s].published.step_s * steps[s].mfu / (others / count);
  }
}

// Sums up how wide the intervals of a group are, how many rows are inside, and which constants make them wide.
void sum_up_intervals(const std::vector<ValidatedStep>& steps, ValidatedGroup& group) {
  std::map<std::string, double> shares;
  const double count = double(group.steps.size());
  for (const std::size_t s : group.steps) {
    const ValidatedStep& step = steps[s];
    group.inside += (step.is_inside() ? 1 : 0) / count;
    group.half_width += (step.high_s() - step.low_s()) / 2 / step.predicted(Fitted::shipped) / count;
    for (const auto& [name, share] : step.spread.shares) shares[name] += share / count;
  }
  group.uncertain.assign(shares.begin(), shares.end());
  std::stable_sort(group.uncertain.begin(), group.uncertain.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
}

void sum_up(std::vector<ValidatedStep>& steps, ValidatedGroup& group, const std::vector<std::size_t>& wider) {
  predict_by_mfu(steps, group);
  const auto errors_by = [&](const auto& time_s) {
    std::vector<double> errors;
    for (const std::size_t s : group.steps)
      if (time_s(steps[s]) > 0) errors.push_back(time_s(steps[s]) / steps[s].published.step_s - 1);
    return errors_of(errors);
  };
  for (const Fitted fitted : {Fitted::nothing, Fitted::sourced, Fitted::shipped})
    group.errors[static_cast<std::size_t>(fitted)] =
        errors_by([&](const ValidatedStep& step) { return step.predicted(fitted); });
  group.constant_mfu = errors_by([](const ValidatedStep& step) { return step.constant_mfu_s; });
  group.left_out_errors = errors_by([](const ValidatedStep& step) { return step.left_out_s; });
  std::vector<double> of_memory;
  for (const std::size_t s : group.steps) {
    if (steps[s].published.hbm_GiB > 0) of_memory.push_back(steps[s].memory_error());
    group.over += steps[s].is_wrongly_over() ? 1 : 0;
  }
  group.memory_rows = of_memory.size();
  group.memory = errors_of(of_memory);
  group.pairs = pairs_of(steps, group.steps, wider);
  group.ranking = ranking_of(steps, group.steps);
}

}  // namespace

double ValidatedStep::least_s() const {
  return std::accumulate(readings_s.begin(), readings_s.end(), predicted(Fitted::shipped),
                         [](double a, double b) { return std::min(a, b); });
}
double ValidatedStep::most_s() const {
  return std::accumulate(readings_s.begin(), readings_s.end(), predicted(Fitted::shipped),
                         [](double a, double b) { return std::max(a, b); });
}
double ValidatedStep::low_s() const { return least_s() * std::exp(-spread.down); }
double ValidatedStep::high_s() const { return most_s() * std::exp(spread.up); }

const char* name_of(Fitted fitted) { return name_in({"nothing", "sourced", "shipped"}, fitted); }

Validation validate(std::vector<PublishedStep> published, const ValidationOptions& options,
                    const ValidationProgress& progress) {
  const auto say = [&](const std::string& line) {
    if (progress) progress(line);
  };
  Validation validation{options, {}, {}};
  Platforms platforms;
  std::vector<ValidatedStep>& steps = validation.steps;
  for (PublishedStep& row : published) {
    ValidatedStep& step = steps.emplace_back();
    step.published = std::move(row);
    if (!step.published.skipped.empty()) continue;
    try {
      step.scenario = parse_scenario(step.published.scenario_text, step.published.id);
      step.published.skipped = own_mode_off(step);
      if (!step.published.skipped.empty()) continue;
      platforms.read(step);
    } catch (const Error& error) {
      step.published.skipped = error.what();
    }
  }
  const auto of_all = std::count_if(steps.begin(), steps.end(),
                                    [](const ValidatedStep& step) { return step.published.skipped.empty(); });
  std::mutex saying;
  std::int64_t done = 0;
  say(fmt::format("predicting {} steps", of_all));
  const auto predict = [&](ValidatedStep& step) {
    try {
      predict_published(step, platforms.at(step), options.intervals);
    } catch (const Error& error) {
      step.published.skipped = error.what();
    }
    const std::lock_guard lock(saying);
    say(fmt::format("{} of {} steps predicted", ++done, of_all));
  };
  // The first thread predicts the largest steps, one after the other.
  std::vector<std::pair<double, ValidatedStep*>> by_size;
  for (ValidatedStep& step : steps)
    if (step.published.skipped.empty()) by_size.emplace_back(-bytes_of(step.scenario), &step);
  std::stable_sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  parallel_each(
      std::ssize(by_size), [&](std::int64_t i) { predict(*by_size[static_cast<std::size_t>(i)].second); }, true);
  std::map<std::string, std::size_t> group_of;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const PublishedStep& row = steps[s].published;
    if (!row.skipped.empty()) continue;
    const std::string wide =
        row.framework + ", " + row.platform + (row.task == "pretrain" || row.task.empty() ? "" : ", " + row.task);
    const std::string name = wide + (steps[s].scenario.training.low_precision.is_on() ? ", " + row.precision : "");
    const auto [found, is_new] = group_of.try_emplace(name, validation.groups.size());
    if (is_new) {
      ValidatedGroup& group = validation.groups.emplace_back();
      group.name = name;
      group.in_16_bits = wide;
      sim::Platform platform = platforms.at(steps[s]);
      Framework framework = steps[s].scenario.framework;
      for (const predict::Constant& constant : predict::constants_of(*platform.accelerator, framework))
        group.fitted_constants += constant.is_fitted();
    }
    validation.groups[found->second].steps.push_back(s);
  }
  for (ValidatedGroup& group : validation.groups) {
    if (options.leave_out) say("fitting constants without each model in turn: " + group.name);
    if (options.leave_out) group.left_out = leave_out(steps, group.steps, platforms.at(steps[group.steps.front()]));
    const auto wider = group_of.find(group.in_16_bits);
    const bool is_low = wider != group_of.end() && group.in_16_bits != group.name;
    sum_up(steps, group, is_low ? validation.groups[wider->second].steps : std::vector<std::size_t>{});
    if (options.intervals) sum_up_intervals(steps, group);
  }
  return validation;
}

}  // namespace stretto::validate
