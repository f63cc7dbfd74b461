#pragma once
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/load.hpp"
#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "report/exposure.hpp"
#include "report/noise.hpp"
#include "report/table.hpp"
#include "report/traffic.hpp"

namespace stretto {

// Time of one operation template in one step: the sum of all its instances, mean over ranks.
struct OperationTime {
  std::string name, kind;
  double predicted_ms = 0, measured_ms = 0;
};

// The time of the compute lanes, broken down (report/exposure.hpp), in milliseconds, mean over ranks.
struct BreakdownMs {
  double compute = 0, core_wait = 0, exposed = 0, queue_wait = 0, bubble = 0;
  std::vector<double> exposed_by = {};  // [communicator]; in predictions they add up to `exposed`
  double host = 0;                      // the part of `bubble` spent waiting for the host
};
BreakdownMs to_ms(const Breakdown& breakdown);

// Marks a value that was not measured: "-" in tables, null in JSON.
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// One schedule at one number of ranks, predicted and measured.
struct ComparisonRow {
  std::string mode;
  std::vector<std::string> equal_modes;  // further modes with an identical schedule: all are measured once
  std::int64_t ranks = 1;
  double predicted_ms = 0;
  std::vector<double> measured_ms;        // every repeat, in the order of the runs
  BreakdownMs predicted, measured;        // measured: median over repeats of each part
  Traffic traffic;                        // in a measured row: of the repeat with the median step time
  std::int64_t peak_bytes = 0;            // for a rank of the role that needs most, as planned and allocated
  std::vector<OperationTime> operations;  // in the order of the schedule's templates
  double loss = kUnknown;                 // loss after a number of steps that is equal for all modes
  // the speed for which the prediction was made: sgemm between the measured steps / sgemm at calibration, both by the
  // time that the threads had a core; 1 where the readings cannot distinguish the two
  double core_speed = 1;
  // disturbance of the prediction: readings of spinning threads between the same steps
  double lost_pct = 0, burst_ms = 0;
  double predicted_as_calibrated_ms = 0;  // the prediction for core_speed 1, undisturbed

  double measured_median_ms() const;
  double error_pct() const;  // (predicted − measured) / measured
};

struct Comparison {
  std::string platform;
  bool on_gpu = false;              // measured on a GPU, where the speed during the measurement is not known
  std::vector<ComparisonRow> rows;  // rows of equal ranks are consecutive; the first of them is the plain schedule
  // [ranks]: from all repeats of all rows, and of a second copy of the plain schedule
  std::map<std::int64_t, NoiseFloor> noise;
  std::map<std::int64_t, Load> loads;  // [ranks]: what else ran on the host's cores meanwhile; empty on a GPU
  double sgemm_GFLOPs = kUnknown,
         step_GFLOPs = kUnknown;  // the yardstick (on a host), and the sustained rate of the one-rank step

  std::vector<std::string> notes;  // the modes that request something and do not get it, with the reason
  // Kept measurements, and discarded ones, which were repeated because a hypervisor gave the cores to other machines
  // meanwhile.
  std::int64_t runs = 0, set_aside = 0;

  const ComparisonRow& plain_of(const ComparisonRow& row) const;  // at an equal number of ranks

  NoiseFloor noise_floor() const;  // mean over the numbers of ranks
  // Others took so much of the cores that errors and advice would be about them: for every 100 ms that ranks computed
  // more than 10 ms, by the spinning threads or by the processors' counters. On a busy machine text and JSON have
  // neither errors nor advice.
  static constexpr double kBusy_pct = 10;
  bool is_busy() const { return taken_pct() > kBusy_pct; }
  // Returns the time that others took for every 100 ms that ranks computed, where it is most. Two readings, as each
  // misses something: the threads spin only between the steps, and counters do not say when a core was wanted.
  double taken_pct() const;
  double mean_abs_error_pct() const;
  double worst_abs_error_pct() const;
  double mean_abs_error_as_calibrated_pct() const;
  // Counts pairs of different schedules at equal ranks whose measured medians differ by more than 5 %, and the pairs
  // among them that the prediction orders likewise.
  struct Ranking {
    int pairs = 0, right = 0;
  };
  Ranking ranking() const;
  // Return step(plain) − step(row) at equal ranks; 0 for the plain row itself.
  double saved_predicted_ms(const ComparisonRow& row) const;
  double saved_measured_ms(const ComparisonRow& row) const;
  // Returns whether the measured step differs from the plain one's by more than the noise floor; nullopt for the plain
  // row itself, and where the floor is not known.
  std::optional<bool> is_beyond_noise(const ComparisonRow& row) const;
};

// Returns predicted and measured sums of each operation template. `measured` are the timelines of the repeats,
// `predicted` those of the simulated steps: the sums are medians over them. Without timelines the sums are unknown.
std::vector<OperationTime> operation_times(const Schedule& schedule,
                                           const std::vector<BoundProgram>& predicted_programs,
                                           std::span<const Timeline> predicted,
                                           const std::vector<BoundProgram>& measured_programs,
                                           const std::vector<Timeline>& measured);

// Return the printed table, one line a row, and the remarks below it, one an element. On a busy machine the first
// remark says what was busy, by how much, and what to do.
Table comparison_table(const Comparison& comparison);
std::vector<std::string> comparison_remarks(const Comparison& comparison);
// Returns the table and the remarks, then for each row the operations that explain most of the difference.
std::string comparison_text(const Comparison& comparison, std::size_t operations_per_row = 4);
// Returns JSON with the keys of the `compare` command, and `operations`, `breakdown` per row.
nlohmann::json comparison_json(const Comparison& comparison);

}  // namespace stretto
