#include "validate/leave_out.hpp"

#include <deque>
#include <set>

#include "base/parallel.hpp"

namespace stretto::validate {

std::vector<LeftOut> leave_out(std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group,
                               const sim::Platform& platform) {
  std::set<std::int64_t> models;
  for (const std::size_t s : group) models.insert(steps[s].scenario.model.hidden_size);
  std::vector<LeftOut> all;
  if (models.size() < 2) return all;
  for (const std::int64_t hidden_size : models) {
    std::vector<std::size_t> others, own;
    for (const std::size_t s : group) (steps[s].scenario.model.hidden_size == hidden_size ? own : others).push_back(s);
    std::deque<predict::QuickStep> built;
    std::vector<MeasuredStep> measured;
    const std::size_t count = std::min(kMostFitted, others.size());
    for (std::size_t i = 0; i < count; ++i) {
      const ValidatedStep& step = steps[others[i * others.size() / count]];
      measured.push_back({&built.emplace_back(step.scenario), step.published.step_s});
    }
    const Refit fit = refit(measured, platform, steps[group.front()].scenario.framework);
    parallel_each(std::int64_t(own.size()), [&](std::int64_t i) {
      ValidatedStep& step = steps[own[static_cast<std::size_t>(i)]];
      const predict::QuickStep rebuilt(step.scenario);
      step.left_out_s = rebuilt.step_s(fit.platform, fit.framework);
    });
    all.push_back({hidden_size, own.size(), count, fit.constants});
  }
  return all;
}

}  // namespace stretto::validate
