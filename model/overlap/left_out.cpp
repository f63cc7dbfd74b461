#include "model/overlap/left_out.hpp"

#include <algorithm>

#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"

namespace stretto {
namespace {

std::string why_left_out(const Scenario& scenario, const OverlapMode& mode) {
  const Gates gates = gates_of(with_mode(scenario, mode.name, scenario.parallel.ranks()));
  if (const Gate* refused = gates.refused({}))
    return (refused->knob == mode.name ? "" : refused->knob + ": ") + refused->reason();
  for (const Gate& gate : gates.all())
    if (gate.knob == mode.knob && gate.asked && !gate.open) return gate.reason();
  return "it does not act in this layout";
}

}  // namespace

std::vector<LeftOutMode> modes_left_out(const Scenario& scenario) {
  const std::vector<std::string> listed = modes_of(scenario);
  std::vector<LeftOutMode> left_out;
  for (const OverlapMode& mode : overlap_modes())
    if (std::find(listed.begin(), listed.end(), mode.name) == listed.end())
      left_out.push_back({mode.name, why_left_out(scenario, mode)});
  return left_out;
}

}  // namespace stretto
