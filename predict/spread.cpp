#include "predict/spread.hpp"

#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "predict/constants.hpp"

namespace stretto::predict {
namespace {

// A step with one constant moved to one end of its interval.
struct Moved {
  std::size_t constant = 0;  // index in `names`
  sim::Platform platform;
  Framework framework;
  sim::Costs costs;
  double change = 0;  // natural logarithm of moved step / predicted step
};

}  // namespace

void add_containers(Spread& spread) {
  spread.down = std::hypot(spread.down, kBetweenContainers);
  spread.up = std::hypot(spread.up, kBetweenContainers);
  const auto place = std::find_if(spread.shares.begin(), spread.shares.end(),
                                  [](const auto& share) { return share.second < kBetweenContainers; });
  spread.shares.insert(place, {"container", kBetweenContainers});
}

Spread spread_of(const QuickStep& step, sim::Platform platform, Framework framework, double predicted_s) {
  const sim::Costs shipped = step.costs(platform, framework);
  std::vector<std::string> names;
  std::vector<Moved> moved;
  for (const Constant& constant : constants_of(*platform.accelerator, framework)) {
    if (!constant.has_interval()) continue;
    const double value = constant.quantity->value;
    names.push_back(constant.name);
    for (const double end : {constant.quantity->low, constant.quantity->high}) {
      constant.quantity->value = end;
      if (sim::Costs costs = step.costs(platform, framework); !(costs == shipped))
        moved.push_back({names.size() - 1, platform, framework, std::move(costs), 0});
    }
    constant.quantity->value = value;
  }
  parallel_each(std::ssize(moved), [&](std::int64_t at) {
    Moved& one = moved[static_cast<std::size_t>(at)];
    one.change = std::log(step.step_s(one.platform, one.framework, {}, &one.costs) / predicted_s);
  });
  Spread spread;
  for (std::size_t constant = 0; constant < names.size(); ++constant) {
    double least = 0, most = 0, first = 0, last = 0;
    bool is_first = true;
    for (const Moved& one : moved) {
      if (one.constant != constant) continue;
      least = std::min(least, one.change);
      most = std::max(most, one.change);
      (is_first ? first : last) = one.change;
      is_first = false;
    }
    spread.down = std::hypot(spread.down, least);
    spread.up = std::hypot(spread.up, most);
    if (first != 0 || last != 0) spread.shares.push_back({names[constant], std::abs(last - first) / 2});
  }
  std::stable_sort(spread.shares.begin(), spread.shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return spread;
}

}  // namespace stretto::predict
