#pragma once
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "report/exposure.hpp"
#include "report/noise.hpp"
#include "report/table.hpp"
#include "report/traffic.hpp"

namespace stretto {

// Time of one operation template in one step: all its instances, mean over ranks.
struct OperationTime {
  std::string name, kind;
  double predicted_ms = 0, measured_ms = 0;
};

// The time of the compute lanes, broken down (report/exposure.hpp), in milliseconds, mean over ranks.
struct BreakdownMs {
  double compute = 0, core_wait = 0, exposed = 0, queue_wait = 0, bubble = 0;
  std::vector<double> exposed_by = {};  // [communicator]; of predictions they add up to `exposed`
  double host = 0;                      // the part of `bubble` that waits for the host
};
BreakdownMs to_ms(const Breakdown& breakdown);

// Not measured: "-" in tables, null in JSON.
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// One schedule at one number of ranks: both sides of it.
struct ComparisonRow {
  std::string mode;
  std::vector<std::string> equal_modes;  // further modes that give the very same schedule: measured once for all
  std::int64_t ranks = 1;
  double predicted_ms = 0;
  std::vector<double> measured_ms;        // every repeat, in the order they ran
  BreakdownMs predicted, measured;        // measured: median over repeats of each part
  Traffic traffic;                        // measured: of the repeat with the median step time
  std::int64_t peak_bytes = 0;            // of a rank of the role that needs most, as planned and allocated
  std::vector<OperationTime> operations;  // in the order of the schedule's templates
  double loss = kUnknown;                 // after the same number of steps in every mode
  double core_speed = 1;                  // what the prediction was made for: sgemm between the measured steps over
                                          // sgemm at calibration, both by the time that its threads had a core; 1 where
                                          // its readings cannot tell the two apart
  double lost_pct = 0, burst_ms = 0;      // the prediction's disturbance: spinning threads between the same steps
  double predicted_as_calibrated_ms = 0;  // the prediction for core_speed 1, undisturbed

  double measured_median_ms() const;
  double error_pct() const;  // (predicted − measured) / measured
};

struct Comparison {
  std::string platform;
  bool on_gpu = false;              // measured on a GPU: nothing is known of how fast it ran meanwhile
  std::vector<ComparisonRow> rows;  // rows of equal ranks stand together; the first of them is the plain schedule
  std::map<std::int64_t, NoiseFloor> noise;  // [ranks]: of all repeats of all rows, and of a second copy of the plain
                                             // schedule
  double sgemm_GFLOPs = kUnknown,
         step_GFLOPs = kUnknown;  // yardstick (of the host) and what the one-rank step sustains

  std::vector<std::string> notes;  // which mode asks for what and does not get it, and why
  // Measurements kept, and those made again because a hypervisor gave the cores to others
  // meanwhile.
  std::int64_t runs = 0, set_aside = 0;

  const ComparisonRow& plain_of(const ComparisonRow& row) const;  // at equal ranks

  NoiseFloor noise_floor() const;  // mean over the numbers of ranks
  // Others took so much of the cores that figures say little: more than kBusy_pct of what ranks computed.
  static constexpr double kBusy_pct = 10;
  bool is_busy() const;
  double mean_abs_error_pct() const;
  double worst_abs_error_pct() const;
  double mean_abs_error_as_calibrated_pct() const;
  // Counts pairs of different schedules at equal ranks whose measured medians differ by more than 5 %, and how many of
  // them the prediction ranks the same way.
  struct Ranking {
    int pairs = 0, right = 0;
  };
  Ranking ranking() const;
  // step(plain) − step(row) at equal ranks; 0 for the plain row itself.
  double saved_predicted_ms(const ComparisonRow& row) const;
  double saved_measured_ms(const ComparisonRow& row) const;
  // Whether the measured step differs from the plain one's by more than the noise floor; not known of the plain row
  // itself, nor where the floor is not.
  std::optional<bool> is_beyond_noise(const ComparisonRow& row) const;
};

// Per operation template: predicted and measured sums. `measured` are the timelines of the repeats, `predicted` those
// of the steps that were simulated: medians over each. Without any the sums are unknown.
std::vector<OperationTime> operation_times(const Schedule& schedule,
                                           const std::vector<BoundProgram>& predicted_programs,
                                           std::span<const Timeline> predicted,
                                           const std::vector<BoundProgram>& measured_programs,
                                           const std::vector<Timeline>& measured);

// One line a row, as it is printed; and what is said below it, one remark an element.
Table comparison_table(const Comparison& comparison);
std::vector<std::string> comparison_remarks(const Comparison& comparison);
// The table and the remarks, then for each row the operations that explain most of the difference.
std::string comparison_text(const Comparison& comparison, std::size_t operations_per_row = 4);
// Keys of the `compare` command, and `operations`, `breakdown` per row.
nlohmann::json comparison_json(const Comparison& comparison);

}  // namespace stretto
