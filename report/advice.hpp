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
  use,              // the whole interval is of a saving
  avoid,            // the whole interval is of a cost, or it does not fit where the plain schedule does
  benchmark_first,  // the interval has both, or the difference is too small to rank
  off,              // it acts on nothing in this scenario
};
const char* name_of(Verdict verdict);  // "use", "avoid", "benchmark first", "off"
// Returns the advice on a saving by its interval; differences of `least` or less are never ranked.
Verdict verdict_of(double saved, double low, double high, double least);

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
  // A smaller saving is not worth a knob, whatever its interval: a judgement, not a measurement.
  static constexpr double kSmall_pct = 0.5;

  std::string mode;
  std::int64_t ranks = 1;
  ModeStep step, plain;
  double low_pct = 0, high_pct = 0;  // interval of saved_pct(): of 80 % where it is predicted, else the noise floor
  std::string decides = {};       // what makes the interval wide, and what would settle it; "": nothing else is known
  double least_pct = kSmall_pct;  // a smaller difference is never ranked
  bool is_measured = false;       // measured; otherwise predicted
  std::string off_because;        // reason of the closed gate; otherwise empty
  bool on_gpu = true;             // channels take SMs; on a host they take cores
  std::string because = {};       // the mode's effect in this layout, where the figures do not show it

  double saved_pct() const { return 100 * (plain.step_ms - step.step_ms) / plain.step_ms; }
  // Makes the interval as wide in both directions.
  void set_unsure(double pct) { low_pct = saved_pct() - pct, high_pct = saved_pct() + pct; }
  std::int64_t memory_delta_bytes() const { return step.peak_bytes - plain.peak_bytes; }
  Verdict verdict() const;
  // Returns one line: the interval of the saving with what decides, the hidden share of the traffic, and the costs for
  // compute and memory.
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
