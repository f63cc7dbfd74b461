#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/comparison.hpp"
#include "report/table.hpp"
#include "report/traffic.hpp"

namespace stretto {

// The advice on an overlap mode.
enum class Verdict : std::uint8_t {
  use,              // it saves more than the uncertainty
  avoid,            // it costs more than the uncertainty, or does not fit where the plain schedule does
  benchmark_first,  // the difference is smaller than the uncertainty
  off,              // it acts on nothing in this scenario
};
const char* name_of(Verdict verdict);  // "use", "avoid", "benchmark first", "off"

// One schedule as input of advice: a rank's step, predicted or measured.
struct ModeStep {
  double step_ms = 0;
  BreakdownMs breakdown;
  Traffic traffic;
  std::int64_t peak_bytes = 0;  // planned and allocated bytes
  bool fits = true;             // it fits on the device
};

// One overlap mode compared with the plain schedule at the same number of ranks. A value type.
struct Advice {
  std::string mode;
  std::int64_t ranks = 1;
  ModeStep step, plain;
  double unsure_pct = 0;     // uncertainty of the saving, in percent of the plain step, in both directions
  bool is_measured = false;  // measured; otherwise predicted
  std::string off_because;   // reason of the closed gate; otherwise empty
  bool on_gpu = true;        // channels take SMs; on a host they take cores
  std::string because = {};  // the mode's effect in this layout, where the figures do not show it

  // A smaller saving is not worth a knob, whatever its interval: a judgement, not a measurement.
  static constexpr double kSmall_pct = 0.5;

  double saved_pct() const { return 100 * (plain.step_ms - step.step_ms) / plain.step_ms; }
  std::int64_t memory_delta_bytes() const { return step.peak_bytes - plain.peak_bytes; }
  Verdict verdict() const;
  // Returns one line: the saving, the hidden share of the traffic, and the costs for compute and memory.
  std::string why() const;
};

// Returns advice from the measurements of a row; the uncertainty is the noise floor, where it is known. `row` is one of
// the comparison's rows.
Advice measured_advice(const Comparison& comparison, const ComparisonRow& row);

// Returns a table with a row for each advice.
Table advice_table(const std::vector<Advice>& advice);
// Returns JSON with the keys of docs/json.md.
nlohmann::json advice_json(const Advice& advice);

}  // namespace stretto
