#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "compare/grid.hpp"
#include "exec/ready_step.hpp"
#include "report/comparison.hpp"

namespace stretto::compare {

// One schedule at one number of ranks, ready to run, and what was measured of it.
struct Contender : exec::ReadyStep {
  using ReadyStep::ReadyStep;
  std::string mode;
  std::vector<std::string> equal_modes;  // which give the same schedule
  std::vector<Timeline> measured;        // one a turn
  double loss = kUnknown;                // of the last step of the warm-up: turns may be more in one than in another
};
double step_ms(const Timeline& timeline);

// A contender for every schedule that is none of those before, and last a second copy of the first (A/A).
std::vector<std::unique_ptr<Contender>> contenders_of(const Grid& grid, std::int64_t ranks,
                                                      const exec::Machine& machine, const exec::TokenSource& tokens);

}  // namespace stretto::compare
