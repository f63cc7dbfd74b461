#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// Fusions of [training] that a scenario leaves open, on a GPU that was calibrated or runs: each is on where it was
// found faster. Chosen before a schedule is built, so that what is predicted and what is run is one object.
struct Fusions {
  std::vector<bool> on;  // by place in the table of fusions; only those that were open can be true
  std::string note;      // which are on, and why; "" where nothing was open
  void apply(Scenario& scenario) const;
};

// `given`: keys of [training] that have values (given_keys), which stay. A fusion is on when the compute of rank 0's
// step takes less with it alone, by what `platform`, a calibrated GPU, has measured; one that needs another is compared
// with those before it in the table. What the platform has not met counts as its parts and is off. Without a platform
// GEMM epilogues are on, which tuning leaves where two kernels are faster, and others off: nothing has measured them.
// On a platform of another kind nothing is chosen.
Fusions choose_fusions(const Scenario& scenario, const std::set<std::string>& given, const sim::Platform* platform);

// The same where a step is predicted: of `scenario`, which was read from `given` with `set` (read_scenario_input()).
Fusions open_fusions(const Scenario& scenario, const std::string& given, const std::vector<std::string>& set,
                     const sim::Platform& platform);

// As one number, for processes that must choose alike; and back.
std::uint32_t bits_of(const Fusions& fusions);
Fusions fusions_of(std::uint32_t bits, std::string note);

}  // namespace stretto::predict
