#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "report/table.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// A step on a published GPU depends on numbers of its platform and profile. Interference, network and host count in
// all that is said here; nothing is added up from a critical path.

// The relative change of the step with one number.
struct Sensitivity {
  std::string constant;  // its place in the files: "accelerator.hbm_share"
  double value = 0;
  std::string kind;  // of its source: "published", "fitted", …
  // d ln(step) / d ln(value): -0.5 says that 1 % more of it makes the step 0.5 % shorter. By the gradient of one
  // simulated step (sim/step_gradient.hpp), or where that is not known by the central difference of 1 % to both sides.
  double pct_per_pct = 0;
};
// Returns the numbers that change the step at all, the most important first. `why_simulated`: why the gradient is not
// known, "" where it is. Throws Error(input) where the platform is no published GPU.
std::vector<Sensitivity> sensitivities_of(const Scenario& scenario, const sim::Platform& platform,
                                          std::string* why_simulated = nullptr);

// The step on a machine that is better in one way.
struct BetterMachine {
  std::string change;  // "twice the rate of NVLink"
  double step_ms = 0;
};
// Returns one entry for each way, the fastest step first. Throws as sensitivities_of().
std::vector<BetterMachine> better_machines(const Scenario& scenario, const sim::Platform& platform);

// Return `numbers` and `machines` of `simulate` in docs/json.md.
Sheet sensitivity_sheet(const std::vector<Sensitivity>& sensitivities);
Sheet machines_sheet(const std::vector<BetterMachine>& machines, double step_ms);

}  // namespace stretto::predict
