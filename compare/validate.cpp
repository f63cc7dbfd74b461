#include "compare/validate.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "model/overlap/overlap.hpp"
#include "model/transformer.hpp"
#include "model/verify/verify.hpp"
#include "report/exposure.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {
namespace {

// The numbers of a platform and profile that may have been fitted.
std::vector<Quantity*> numbers_of(sim::Accelerator& a, Framework& f) {
  std::vector<Quantity*> numbers = {&a.gemm_sustained,
                                    &a.gemm_odd,
                                    &a.gemm_unaligned,
                                    &a.hbm_share,
                                    &a.kernel_us,
                                    &a.bmm_share,
                                    &a.collective_in_step_us,
                                    &a.network_share,
                                    &f.issue_us,
                                    &f.collective_issue_us,
                                    &f.micro_batch_us,
                                    &f.step_us};
  for (sim::AttentionKernel& kernel : a.attention) {
    numbers.push_back(&kernel.forward_TFLOPs);
    numbers.push_back(&kernel.backward_TFLOPs);
  }
  for (auto* own : {&f.gemm_sustained, &f.hbm_share, &f.kernel_us, &f.bmm_share, &f.collective_in_step_us})
    if (*own) numbers.push_back(&**own);
  for (auto& [kind, bytes] : f.element_bytes) numbers.push_back(&bytes);
  return numbers;
}

void reduce(sim::Accelerator& a, Framework& f, Fitted fitted) {
  if (fitted == Fitted::shipped) return;
  for (Quantity* number : numbers_of(a, f))
    if (number->source.kind == "fitted" && number->sourced) number->value = *number->sourced;
  if (fitted == Fitted::sourced) return;
  f.gemm_sustained.reset();
  f.collective_in_step_us.reset();
  a.gemm_sustained.value = 1;
  a.collective_in_step_us.value = 0;
  for (Quantity* host : {&f.issue_us, &f.collective_issue_us, &f.micro_batch_us, &f.step_us}) host->value = 0;
}

// Platforms of a run, read once.
class Platforms {
 public:
  const sim::Platform& at(const std::string& path) {
    auto found = platforms_.find(path);
    if (found == platforms_.end()) found = platforms_.emplace(path, sim::read_platform(path)).first;
    return found->second;
  }

 private:
  std::map<std::string, sim::Platform> platforms_;
};

void predict_step(ValidatedStep& step, Platforms& platforms) {
  const Scenario scenario = parse_scenario(step.published.scenario_text, step.published.id);
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  for (const Fitted fitted : {Fitted::nothing, Fitted::sourced, Fitted::shipped}) {
    sim::Platform platform = platforms.at(scenario.platform);
    Framework framework = scenario.framework;
    reduce(*platform.accelerator, framework, fitted);
    const sim::Costs costs = sim::cost_schedule(schedule, platform, scenario.cluster, 1, framework);
    const sim::SimResult result = sim::simulate(schedule, verified.programs, costs);
    step.predicted_s[static_cast<std::size_t>(fitted)] = to_ms(result.step) * 1e-3;
    if (fitted != Fitted::shipped) continue;
    const Breakdown b = mean_breakdown(schedule, result.programs, result.timeline);
    const double step_ms = to_ms(result.step);
    step.limits = {{"compute", to_ms(b.compute) / step_ms}, {"waiting", to_ms(b.bubble) / step_ms}};
    for (std::size_t c = 0; c < b.exposed.size(); ++c)
      step.limits.push_back({"exposed " + schedule.communicators[c].name, to_ms(b.exposed[c]) / step_ms});
    std::stable_sort(step.limits.begin(), step.limits.end(),
                     [](const auto& x, const auto& y) { return x.second > y.second; });
    const double flops =
        training_flops_per_sequence(scenario.model).model * double(scenario.training.global_batch_size);
    step.mfu =
        flops / step.published.step_s / (platform.accelerator->peak_TFLOPs.value * 1e12 * double(step.published.gpus));
  }
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

// A row's time by the mean MFU of the other rows of its group: what somebody without a model would say.
void predict_by_mfu(std::vector<ValidatedStep>& steps, const ValidatedGroup& group) {
  for (const std::size_t s : group.steps) {
    double others = 0;
    int count = 0;
    for (const std::size_t other : group.steps)
      if (steps[other].published.cluster != steps[s].published.cluster) others += steps[other].mfu, ++count;
    if (count > 0) steps[s].constant_mfu_s = steps[s].published.step_s * steps[s].mfu / (others / count);
  }
}

}  // namespace

const char* name_of(Fitted fitted) {
  switch (fitted) {
    case Fitted::nothing:
      return "nothing";
    case Fitted::sourced:
      return "sourced";
    case Fitted::shipped:
      return "shipped";
  }
  return "";
}

Validation validate(std::vector<PublishedStep> published) {
  Validation validation;
  Platforms platforms;
  std::map<std::string, std::size_t> group_of;
  for (PublishedStep& row : published) {
    ValidatedStep& step = validation.steps.emplace_back();
    step.published = std::move(row);
    if (!step.published.skipped.empty()) continue;
    try {
      predict_step(step, platforms);
    } catch (const Error& error) {
      step.published.skipped = error.what();
      continue;
    }
    const std::string name = step.published.framework + ", " + step.published.platform +
                             (step.published.task == "pretrain" ? "" : ", " + step.published.task);
    const auto [found, is_new] = group_of.try_emplace(name, validation.groups.size());
    if (is_new) {
      ValidatedGroup& group = validation.groups.emplace_back();
      group.name = name;
      const Scenario scenario = parse_scenario(step.published.scenario_text, step.published.id);
      sim::Platform platform = platforms.at(scenario.platform);
      Framework framework = scenario.framework;
      for (const Quantity* number : numbers_of(*platform.accelerator, framework))
        group.fitted_constants += number->source.kind == "fitted";
    }
    validation.groups[found->second].steps.push_back(validation.steps.size() - 1);
  }
  for (ValidatedGroup& group : validation.groups) {
    predict_by_mfu(validation.steps, group);
    std::vector<double> by_mfu;
    for (int f = 0; f < kFittedKinds; ++f) {
      std::vector<double> errors;
      for (const std::size_t s : group.steps) errors.push_back(validation.steps[s].error(static_cast<Fitted>(f)));
      group.errors[static_cast<std::size_t>(f)] = errors_of(errors);
    }
    for (const std::size_t s : group.steps)
      if (validation.steps[s].constant_mfu_s > 0)
        by_mfu.push_back(validation.steps[s].constant_mfu_s / validation.steps[s].published.step_s - 1);
    group.constant_mfu = errors_of(by_mfu);
  }
  return validation;
}

}  // namespace stretto::compare
