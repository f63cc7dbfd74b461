#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/scenario.hpp"
#include "validate/intervals.hpp"
#include "validate/published.hpp"

namespace stretto::validate {

// How much of what was fitted to published steps a prediction uses.
enum class Fitted : std::uint8_t {
  nothing,  // the tables as they are: nothing sustained, nothing between kernels, no host
  sourced,  // fitted constants by their sources alone
  shipped,  // as the platform and the profile have them
};
constexpr int kFittedKinds = 3;
const char* name_of(Fitted fitted);  // as in tables and JSON

// A published step and what is predicted for it. Times are seconds of one step, shares and errors 0.01 for 1 %. A step
// that is skipped (published.skipped says why) has nothing but `published`.
struct ValidatedStep {
  PublishedStep published;
  Scenario scenario;                                   // of a step that is modelled
  std::array<double, kFittedKinds> predicted_s{};      // [Fitted]; 0 for a step that is skipped
  double mfu = 0;                                      // of the measured step, by the data sheet's peak
  double constant_mfu_s = 0;                           // by the mean MFU of the other rows of the group; 0 without any
  double left_out_s = 0;                               // by constants fitted without its model; 0: not asked
  std::vector<std::pair<std::string, double>> limits;  // what the predicted step is made of, as shares, largest first
  std::int64_t peak_bytes = 0;  // predicted, of what the row publishes; of a device where it publishes none
  std::int64_t over_bytes = 0;  // above 0: by so much it is predicted not to fit
  Spread spread;                // of the shipped prediction; 0 unless asked for

  double predicted(Fitted fitted) const { return predicted_s[static_cast<std::size_t>(fitted)]; }
  // predicted / measured − 1, of a step that is modelled.
  double error(Fitted fitted) const { return predicted(fitted) / published.step_s - 1; }
  // Of memory, where the row has a peak; as error().
  double memory_error() const { return double(peak_bytes) / (published.hbm_GiB * double(1 << 30)) - 1; }
  // It ran, so it fits.
  bool is_wrongly_over() const { return over_bytes > 0 && !published.offloads; }
  // The 80 % interval of the prediction, and whether the measured step is in it.
  double low_s() const;
  double high_s() const;
  bool is_inside() const { return published.step_s >= low_s() && published.step_s <= high_s(); }
};

}  // namespace stretto::validate
