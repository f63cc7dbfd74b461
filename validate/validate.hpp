#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "validate/leave_out.hpp"
#include "validate/pairs.hpp"

namespace stretto::validate {

// Modelled rows that share framework, platform and task, and where products are in a low precision that recipe. Errors
// are predicted / measured − 1.
struct ValidatedGroup {
  std::string name;
  std::string in_16_bits;          // name of the group of the same framework, platform and task in 16 bits
  std::vector<std::size_t> steps;  // indices of the modelled steps
  int fitted_constants = 0;        // fitted constants of the platform and the profile
  struct Errors {
    double mean_abs = 0, median_abs = 0, bias = 0, worst = 0;  // worst has its sign
  };
  std::array<Errors, kFittedKinds> errors{};
  Errors constant_mfu;
  Errors memory;  // errors of peaks, over the rows that have one
  std::size_t memory_rows = 0;
  std::size_t over = 0;  // rows that are predicted not to fit, though they ran
  std::vector<PairKind> pairs;
  Ranking ranking;
  // Intervals: the share of rows inside theirs, the mean of (e^up − e^−down) / 2, and the constants that cause them,
  // each with the mean of its share of the step's logarithm, largest first.
  double inside = 0, half_width = 0;
  std::vector<std::pair<std::string, double>> uncertain;
  // Each model left out in turn, with its errors.
  std::vector<LeftOut> left_out;
  Errors left_out_errors;
};

// Statistics that take long, computed only on request.
struct ValidationOptions {
  bool intervals = false, leave_out = false;
};

struct Validation {
  ValidationOptions options;
  std::vector<ValidatedStep> steps;
  std::vector<ValidatedGroup> groups;
};

// Predicts every step that can be modelled, on the platform and with the profile that it names, each from a verified
// schedule. A step that cannot be built or verified is skipped with the reason, and does not throw. Constants are the
// shipped ones: nothing is fitted here except to leave a model out. Needs their files (base/data_folder.hpp). Uses all
// processors; the result does not depend on their number.
//
// `progress` gets a line at the beginning and after every step; from one thread at a time.
using ValidationProgress = std::function<void(const std::string& line)>;
Validation validate(std::vector<PublishedStep> steps, const ValidationOptions& options = {},
                    const ValidationProgress& progress = nullptr);

}  // namespace stretto::validate
