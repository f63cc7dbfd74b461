#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// Fusions of [training] that a scenario leaves open, on a GPU that was calibrated or runs: each is on where it was
// measured faster. They are chosen before a schedule is built, so that prediction and run use one schedule.
struct Fusions {
  std::vector<bool> on;  // by index into the table of fusions; only open fusions can be true
  std::string note;      // the fusions that are on, and why; "" where none was open
  void apply(Scenario& scenario) const;
};

// Chooses the fusions. `given` are keys of [training] that have values (given_keys), which stay. A fusion is on when
// the compute of rank 0's step takes less with it alone, by the measurements of `platform`, a calibrated GPU; one that
// needs another is compared with those before it in the table. A fusion that the platform has not measured counts as
// its parts and is off. Without a platform GEMM epilogues are on, because tuning drops them where two kernels are
// faster, and other fusions are off: nothing has measured them. On a platform of another kind nothing is chosen.
Fusions choose_fusions(const Scenario& scenario, const std::set<std::string>& given, const sim::Platform* platform);

// Chooses the fusions for a prediction of `scenario`, which was read from `given` with `set` (read_scenario_input()).
Fusions open_fusions(const Scenario& scenario, const std::string& given, const std::vector<std::string>& set,
                     const sim::Platform& platform);

// Convert the choice to one number, for processes that must make equal choices; and back.
std::uint32_t bits_of(const Fusions& fusions);
Fusions fusions_of(std::uint32_t bits, std::string note);

}  // namespace stretto::predict
