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

struct ValidatedStep {
  PublishedStep published;
  std::array<double, kFittedKinds> predicted_s{};      // [Fitted]; 0 for a step that is skipped
  double mfu = 0;                                      // of the measured step, by the data sheet's peak
  double constant_mfu_s = 0;                           // by the mean MFU of the other rows of the group; 0 without any
  std::vector<std::pair<std::string, double>> limits;  // what the predicted step is made of, as shares, largest first
  double error(Fitted fitted) const { return predicted_s[static_cast<std::size_t>(fitted)] / published.step_s - 1; }
};

// Rows that share source, framework and GPU.
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

// Predicts every step of the file that can be modelled. A step that cannot be built or verified is skipped, with the
// reason.
Validation validate(std::vector<PublishedStep> steps);

}  // namespace stretto::compare
