#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/scenario.hpp"
#include "predict/spread.hpp"
#include "validate/published.hpp"

namespace stretto::validate {

// How many of the constants fitted to published steps a prediction uses.
enum class Fitted : std::uint8_t {
  nothing,  // the tables alone: nothing sustained, nothing between kernels, no host
  sourced,  // fitted constants at the values of their sources
  shipped,  // the constants of the platform and the profile
};
constexpr int kFittedKinds = 3;
const char* name_of(Fitted fitted);  // as in tables and JSON

// A published step and its predictions. Times are seconds of one step, shares and errors 0.01 for 1 %. A skipped step
// (published.skipped says why) has only `published`.
struct ValidatedStep {
  PublishedStep published;
  Scenario scenario;                               // set for a modelled step
  std::array<double, kFittedKinds> predicted_s{};  // [Fitted]; 0 for a skipped step
  double mfu = 0;                                  // of the measured step, relative to the data sheet's peak
  // predicted by the mean MFU of the other rows of the group; 0 without any
  double constant_mfu_s = 0;
  // predicted with constants fitted without its model; 0: not requested
  double left_out_s = 0;
  std::vector<std::pair<std::string, double>> limits;  // parts of the predicted step, as shares, largest first
  // Predicted time in which communications move bytes, and the part of it that computation hides; seconds of a step.
  double active_s = 0, hidden_s = 0;
  std::int64_t peak_bytes = 0;  // predicted for the kind that the row publishes; of a device where it publishes none
  std::int64_t over_bytes = 0;  // above 0: the bytes by which it is predicted not to fit
  predict::Spread spread;                // of the shipped prediction; 0 unless requested
  // The shipped prediction of each PublishedStep::readings, in their order; empty where the row leaves nothing open.
  std::vector<double> readings_s;

  double predicted(Fitted fitted) const { return predicted_s[static_cast<std::size_t>(fitted)]; }
  // Returns predicted / measured − 1 of a modelled step.
  double error(Fitted fitted) const { return predicted(fitted) / published.step_s - 1; }
  // Returns the error of memory, where the row has a peak.
  double memory_error() const { return double(peak_bytes) / (published.hbm_GiB * double(1 << 30)) - 1; }
  // A step that ran must fit.
  bool is_wrongly_over() const { return over_bytes > 0 && !published.offloads; }
  // The shortest and the longest prediction, over all readings of the row.
  double least_s() const;
  double most_s() const;
  // The 80 % interval of the predictions, from the shortest to the longest, and whether the measured step is in it.
  double low_s() const;
  double high_s() const;
  bool is_inside() const { return published.step_s >= low_s() && published.step_s <= high_s(); }
};

}  // namespace stretto::validate
