#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/comparison.hpp"
#include "report/table.hpp"
#include "report/traffic.hpp"

namespace stretto {

// Whether an overlap mode should be turned on.
enum class Verdict : std::uint8_t {
  use,              // it saves more than is uncertain
  avoid,            // it costs more than is uncertain, or does not fit where the plain schedule does
  benchmark_first,  // the difference is too small to be told
  off,              // it acts on nothing here
};
const char* name_of(Verdict verdict);  // "use", "avoid", "benchmark first", "off"

// One schedule as advice looks at it: a rank's step, predicted or measured.
struct ModeStep {
  double step_ms = 0;
  BreakdownMs breakdown;
  Traffic traffic;
  std::int64_t peak_bytes = 0;  // as planned and allocated
  bool fits = true;             // on the device
};

// One overlap mode against the plain schedule at the same number of ranks. A value type.
struct Advice {
  std::string mode;
  std::int64_t ranks = 1;
  ModeStep step, plain;
  double unsure_pct = 0;     // the saving may be off by so much of the plain step, either way
  bool is_measured = false;  // otherwise expected
  std::string off_because;   // the gate that is closed; otherwise empty
  std::string because = {};  // what the mode changes in this layout, where the figures do not say it themselves

  // A saving below this is not worth a knob whatever its interval says: a judgement, and no measurement.
  static constexpr double kSmall_pct = 0.5;

  double saved_pct() const { return 100 * (plain.step_ms - step.step_ms) / plain.step_ms; }
  std::int64_t memory_delta_bytes() const { return step.peak_bytes - plain.peak_bytes; }
  Verdict verdict() const;
  // One line: what is saved, how much of the traffic is hidden, what compute and memory pay.
  std::string why() const;
};

// What was measured of a row says of its mode; uncertain is the noise floor, where it is known. `row` is one of the
// comparison's.
Advice measured_advice(const Comparison& comparison, const ComparisonRow& row);

// A row for each.
Table advice_table(const std::vector<Advice>& advice);
// The keys of docs/json.md.
nlohmann::json advice_json(const Advice& advice);

}  // namespace stretto
