#pragma once
#include <string>
#include <vector>

#include "validate/refit.hpp"
#include "validate/validated_step.hpp"

namespace stretto::validate {

// One model left out: the constants that were fitted to published steps are fitted again to the other models of its
// group, and predict its steps.
struct LeftOut {
  std::int64_t hidden_size = 0;  // identifies a model within its group
  std::size_t steps = 0;         // predicted steps
  std::size_t fitted_to = 0;     // steps of other models
  std::vector<Refitted> constants;
};

// Leaves out each model of a group in turn; sets left_out_s of its steps. A fit uses at most kMostFitted steps, evenly
// chosen. Empty for a group of one model.
constexpr std::size_t kMostFitted = 24;
std::vector<LeftOut> leave_out(std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group,
                               const sim::Platform& platform);

}  // namespace stretto::validate
