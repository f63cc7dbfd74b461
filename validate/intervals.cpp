#include "validate/intervals.hpp"

#include <algorithm>
#include <cmath>

#include "predict/constants.hpp"

namespace stretto::validate {

void add_containers(Spread& spread) {
  spread.down = std::hypot(spread.down, kBetweenContainers);
  spread.up = std::hypot(spread.up, kBetweenContainers);
  const auto place = std::find_if(spread.shares.begin(), spread.shares.end(),
                                  [](const auto& share) { return share.second < kBetweenContainers; });
  spread.shares.insert(place, {"container", kBetweenContainers});
}

Spread spread_of(const predict::QuickStep& step, sim::Platform platform, Framework framework, double predicted_s) {
  Spread spread;
  const sim::Costs shipped = step.costs(platform, framework);
  for (const predict::Constant& constant : predict::constants_of(*platform.accelerator, framework)) {
    if (!constant.has_interval()) continue;
    const double value = constant.quantity->value;
    const auto change_at = [&](double end) {
      constant.quantity->value = end;
      const sim::Costs costs = step.costs(platform, framework);
      return costs == shipped ? 0 : std::log(step.step_s(platform, framework, {}, &costs) / predicted_s);
    };
    const double at_low = change_at(constant.quantity->low), at_high = change_at(constant.quantity->high);
    constant.quantity->value = value;
    spread.down = std::hypot(spread.down, std::min({at_low, at_high, 0.0}));
    spread.up = std::hypot(spread.up, std::max({at_low, at_high, 0.0}));
    if (at_low != 0 || at_high != 0) spread.shares.push_back({constant.name, std::abs(at_high - at_low) / 2});
  }
  std::stable_sort(spread.shares.begin(), spread.shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return spread;
}

}  // namespace stretto::validate
