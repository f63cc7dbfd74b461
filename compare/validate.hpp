#pragma once
#include <array>
#include <string>
#include <vector>

#include "compare/published.hpp"

namespace stretto::compare {

// How much of what was fitted to published steps a prediction uses.
enum class Fitted : std::uint8_t {
  nothing,  // the tables as they are: nothing sustained, nothing between kernels, no host
  sourced,  // fitted constants by their sources alone
  shipped,  // as the platform and the profile have them
};
constexpr int kFittedKinds = 3;
const char* name_of(Fitted fitted);

// A published step and what is predicted for it. Times are seconds of one step.
struct ValidatedStep {
  PublishedStep published;
  std::array<double, kFittedKinds> predicted_s{};      // [Fitted]; 0 for a step that is skipped
  double mfu = 0;                                      // of the measured step, by the data sheet's peak
  double constant_mfu_s = 0;                           // by the mean MFU of the other rows of the group; 0 without any
  std::vector<std::pair<std::string, double>> limits;  // what the predicted step is made of, as shares, largest first
  // predicted / measured − 1, of a step that is modelled.
  double error(Fitted fitted) const { return predicted_s[static_cast<std::size_t>(fitted)] / published.step_s - 1; }
};

// Modelled rows that share framework, platform and task. Errors are predicted / measured − 1.
struct ValidatedGroup {
  std::string name;
  std::vector<std::size_t> steps;  // indices, of those that are modelled
  int fitted_constants = 0;        // that the platform and the profile have
  struct Errors {
    double mean_abs = 0, median_abs = 0, bias = 0, worst = 0;  // worst with its sign
  };
  std::array<Errors, kFittedKinds> errors{};
  Errors constant_mfu;
};

struct Validation {
  std::vector<ValidatedStep> steps;
  std::vector<ValidatedGroup> groups;
};

// Predicts every step that can be modelled, on the platform and with the profile that it names, each from a verified
// schedule. A step that cannot be built or verified is skipped with the reason, not thrown. Constants are those that
// come with Stretto: nothing is fitted here. Needs their files (base/data_folder.hpp); one thread.
Validation validate(std::vector<PublishedStep> steps);

}  // namespace stretto::compare
