#include "report/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/statistics.hpp"
#include "report/advice.hpp"
#include "report/table.hpp"

namespace stretto {
namespace {

// Sums the times of all instances of each template, and takes the mean over the ranks of the timeline, in ms.
std::map<OpId, double> sums_ms(const std::vector<BoundProgram>& programs, const Timeline& timeline) {
  std::map<std::int64_t, const BoundProgram*> program_of;
  for (const BoundProgram& program : programs) program_of[program.rank] = &program;
  std::map<OpId, double> sums;
  for (const TimelineRow& row : timeline.rows) {
    const OpId op = program_of.at(row.rank)->ops[row.op].op;
    // A communication's own time begins when all members have arrived; a compute operation's when it has its core.
    sums[op] += to_ms(row.moved() - row.transfer) / double(programs.size());
  }
  return sums;
}

// Returns the medians of these sums over timelines.
std::map<OpId, double> median_sums_ms(const std::vector<BoundProgram>& programs, std::span<const Timeline> timelines) {
  std::map<OpId, std::vector<double>> all;
  for (const Timeline& timeline : timelines)
    for (const auto& [op, ms] : sums_ms(programs, timeline)) all[op].push_back(ms);
  std::map<OpId, double> medians;
  for (const auto& [op, ms] : all) medians[op] = median(ms);
  return medians;
}

template <class Value>
double mean_over(const std::vector<ComparisonRow>& rows, Value value) {
  double sum = 0;
  for (const ComparisonRow& row : rows) sum += value(row);
  return rows.empty() ? kUnknown : sum / double(rows.size());
}

std::string number(const char* format, double value) {
  return std::isnan(value) ? "-" : fmt::format(fmt::runtime(format), value);
}
nlohmann::json known(double value) { return std::isnan(value) ? nlohmann::json(nullptr) : nlohmann::json(value); }

// Returns advice on the rows whose difference from the plain schedule is beyond the noise.
std::vector<Advice> all_advice(const Comparison& comparison) {
  std::vector<Advice> advice;
  for (const ComparisonRow& row : comparison.rows)
    if (comparison.is_beyond_noise(row) == true) advice.push_back(measured_advice(comparison, row));
  return advice;
}

// Returns the number of rows that get no advice, because the noise hides their difference.
std::ptrdiff_t within_noise(const Comparison& comparison) {
  return std::count_if(comparison.rows.begin(), comparison.rows.end(), [&](const ComparisonRow& row) {
    return &row != &comparison.plain_of(row) && comparison.is_beyond_noise(row) != true;
  });
}

// Returns what was busy, by how much, and what to do.
std::string busy_text(const Comparison& comparison) {
  const auto most =
      std::max_element(comparison.loads.begin(), comparison.loads.end(), [](const auto& a, const auto& b) {
        return a.second.taken_pct(double(a.first)) < b.second.taken_pct(double(b.first));
      });
  std::string text = "the machine was busy: ";
  if (most != comparison.loads.end() && most->second.cores > 0) {
    const Load& load = most->second;
    std::string names;
    for (const std::string& name : load.names) names += (names.empty() ? " (" : ", ") + name;
    text += fmt::format("other programs{}{} used {:.2f} of its {:g} cores", names, names.empty() ? "" : ")",
                        load.others_cores, load.cores);
    if (load.stolen_cores > 0.005) text += fmt::format(", other machines on its hardware {:.2f}", load.stolen_cores);
    text += fmt::format(" while {} {} ran (load average {:.1f}); ", most->first, most->first == 1 ? "rank" : "ranks",
                        load.average);
  }
  return text + fmt::format(
                    "for every 100 ms that ranks computed, others took up to {:.0f} ms of the cores; above {:g} ms "
                    "errors and advice would be about them, and none are printed. Stop what else runs (`top` lists it) "
                    "and run this again",
                    comparison.taken_pct(), Comparison::kBusy_pct);
}

}  // namespace

BreakdownMs to_ms(const Breakdown& b) {
  BreakdownMs ms{to_ms(b.compute), to_ms(b.core_wait), to_ms(b.exposed_total), to_ms(b.queue_wait), to_ms(b.bubble), {},
                 to_ms(b.host)};
  for (const Picoseconds exposed : b.exposed) ms.exposed_by.push_back(to_ms(exposed));
  return ms;
}

const ComparisonRow& Comparison::plain_of(const ComparisonRow& row) const {
  for (const ComparisonRow& other : rows)
    if (other.ranks == row.ranks) return other;
  return row;
}

double ComparisonRow::measured_median_ms() const { return median(measured_ms); }
double ComparisonRow::error_pct() const { return 100 * (predicted_ms - measured_median_ms()) / measured_median_ms(); }

NoiseFloor Comparison::noise_floor() const {
  NoiseFloor mean{kUnknown, kUnknown, kUnknown};
  double count = 0;
  for (const auto& [ranks, floor] : noise) {
    if (std::isnan(floor.pct)) continue;
    if (count++ == 0) mean = {};
    mean = {mean.pct + floor.pct, mean.low_pct + floor.low_pct, mean.high_pct + floor.high_pct};
  }
  return {mean.pct / count, mean.low_pct / count, mean.high_pct / count};
}

double Comparison::taken_pct() const {
  double most_pct = 0;
  for (const ComparisonRow& row : rows) most_pct = std::max(most_pct, row.lost_pct);
  for (const auto& [ranks, load] : loads) most_pct = std::max(most_pct, load.taken_pct(double(ranks)));
  return most_pct;
}

std::optional<bool> Comparison::is_beyond_noise(const ComparisonRow& row) const {
  const ComparisonRow& plain = plain_of(row);
  const auto floor = noise.find(row.ranks);
  if (&plain == &row || floor == noise.end() || std::isnan(floor->second.pct)) return std::nullopt;
  return std::abs(saved_measured_ms(row)) > floor->second.pct / 100 * plain.measured_median_ms();
}

double Comparison::mean_abs_error_pct() const {
  return mean_over(rows, [](const ComparisonRow& row) { return std::abs(row.error_pct()); });
}
double Comparison::worst_abs_error_pct() const {
  double worst = rows.empty() ? kUnknown : 0;
  for (const ComparisonRow& row : rows) worst = std::max(worst, std::abs(row.error_pct()));
  return worst;
}

double Comparison::mean_abs_error_as_calibrated_pct() const {
  return mean_over(rows, [](const ComparisonRow& row) {
    return 100 * std::abs(row.predicted_as_calibrated_ms / row.measured_median_ms() - 1);
  });
}

Comparison::Ranking Comparison::ranking() const {
  Ranking ranking;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      if (rows[i].ranks != rows[j].ranks || rows[i].predicted_ms == rows[j].predicted_ms) continue;
      const double a = rows[i].measured_median_ms(), b = rows[j].measured_median_ms();
      if (std::abs(a - b) <= 0.05 * std::min(a, b)) continue;
      ++ranking.pairs;
      if ((a < b) == (rows[i].predicted_ms < rows[j].predicted_ms)) ++ranking.right;
    }
  return ranking;
}

double Comparison::saved_predicted_ms(const ComparisonRow& row) const {
  return plain_of(row).predicted_ms - row.predicted_ms;
}
double Comparison::saved_measured_ms(const ComparisonRow& row) const {
  return plain_of(row).measured_median_ms() - row.measured_median_ms();
}

std::vector<OperationTime> operation_times(const Schedule& schedule,
                                           const std::vector<BoundProgram>& predicted_programs,
                                           std::span<const Timeline> predicted,
                                           const std::vector<BoundProgram>& measured_programs,
                                           const std::vector<Timeline>& measured) {
  const std::map<OpId, double> measured_ms = median_sums_ms(measured_programs, measured);
  std::vector<OperationTime> times;
  for (const auto& [op, ms] : median_sums_ms(predicted_programs, predicted)) {
    const auto found = measured_ms.find(op);
    times.push_back({schedule.operations[op].name, kind_of(schedule.operations[op].work), ms,
                     found == measured_ms.end() ? kUnknown : found->second});
  }
  return times;
}

Table comparison_table(const Comparison& comparison) {
  Table table({"ranks", "mode", "predicted ms", "measured ms", "min–max", "error", "exposed pred.", "exposed meas.",
               "saved pred.", "saved meas.", "beyond noise", "loss"});
  for (const ComparisonRow& row : comparison.rows) {
    const std::optional<bool> beyond = comparison.is_beyond_noise(row);
    table.add_row({std::to_string(row.ranks), row.mode, number("{:.1f}", row.predicted_ms),
                   number("{:.1f}", row.measured_median_ms()),
                   fmt::format("{:.1f}–{:.1f}", minimum(row.measured_ms), maximum(row.measured_ms)),
                   number("{:+.1f}%", comparison.is_busy() ? kUnknown : row.error_pct()),
                   number("{:.1f}", row.predicted.exposed), number("{:.1f}", row.measured.exposed),
                   number("{:.1f}", comparison.saved_predicted_ms(row)),
                   number("{:.1f}", comparison.saved_measured_ms(row)),
                   !beyond || comparison.is_busy() ? "-"
                   : *beyond                       ? "yes"
                                                   : "no",
                   number("{:.4f}", row.loss)});
    for (const std::string& mode : row.equal_modes) table.add_row({std::to_string(row.ranks), mode + " = " + row.mode});
  }
  return table;
}

std::vector<std::string> comparison_remarks(const Comparison& comparison) {
  std::vector<std::string> remarks;
  std::string speeds, losses;
  const bool is_busy = comparison.is_busy();
  for (std::size_t i = 0; i < comparison.rows.size(); ++i)
    if (i == 0 || comparison.rows[i].ranks != comparison.rows[i - 1].ranks) {
      const ComparisonRow& row = comparison.rows[i];
      speeds += fmt::format("{}{:.2f} at {}", speeds.empty() ? "" : ", ", row.core_speed, row.ranks);
      losses += fmt::format("{}{:.1f} % in bursts of {:.2f} ms at {}", losses.empty() ? "" : ", ", row.lost_pct,
                            row.burst_ms, row.ranks);
    }
  if (is_busy) remarks.push_back(busy_text(comparison));
  const NoiseFloor noise = comparison.noise_floor();
  std::string floor = std::isnan(noise.pct)
                          ? std::string("noise floor not known, which takes three turns")
                          : fmt::format(
                                "noise floor {:.1f} % ({:.1f} to {:.1f} %): two runs of one schedule differ by "
                                "less, 95 of 100 times",
                                noise.pct, noise.low_pct, noise.high_pct);
  remarks.push_back(is_busy ? floor
                            : "mean error " + number("{:.1f} %", comparison.mean_abs_error_pct()) + ", worst " +
                                  number("{:.1f} %", comparison.worst_abs_error_pct()) + "; " + floor);
  if (!comparison.on_gpu)
    remarks.push_back(fmt::format(
        "cores ran at {} ranks of their speed at calibration (sgemm in the same turns; 1.00: no clear difference), and "
        "others took {} ranks (spinning threads), which predictions use{}",
        speeds, losses,
        is_busy ? "" : "; without: mean error " + number("{:.1f} %", comparison.mean_abs_error_as_calibrated_pct())));
  if (const Comparison::Ranking ranking = comparison.ranking(); !is_busy)
    remarks.push_back(fmt::format("modes whose measured medians differ by more than 5 %: {} pairs, {} ranked right",
                                  ranking.pairs, ranking.right));
  if (comparison.set_aside > 0)
    remarks.push_back(fmt::format("{} of {} measurements were made again: the hypervisor had taken the cores meanwhile",
                                  comparison.set_aside, comparison.runs));
  if (comparison.step_GFLOPs > 0 && comparison.on_gpu)
    remarks.push_back(fmt::format("one-rank step sustains {:.1f} TFLOP/s", comparison.step_GFLOPs * 1e-3));
  else if (comparison.step_GFLOPs > 0)
    remarks.push_back(
        comparison.step_GFLOPs > comparison.sgemm_GFLOPs
            ? fmt::format(
                  "one-rank step sustains {:.1f} GFLOP/s, more than sgemm 1024³ on the same thread ({:.1f}): the "
                  "cores changed their speed between the two",
                  comparison.step_GFLOPs, comparison.sgemm_GFLOPs)
            : fmt::format("one-rank step sustains {:.1f} GFLOP/s, {:.0f} % of sgemm 1024³ on the same thread ({:.1f})",
                          comparison.step_GFLOPs, 100 * comparison.step_GFLOPs / comparison.sgemm_GFLOPs,
                          comparison.sgemm_GFLOPs));
  for (const std::string& note : comparison.notes) remarks.push_back("note: " + note);
  return remarks;
}

std::string comparison_text(const Comparison& comparison, std::size_t operations_per_row) {
  std::string text = comparison_table(comparison).text() + "\n";
  for (const std::string& remark : comparison_remarks(comparison)) text += remark + "\n";
  if (comparison.is_busy()) return text;
  text += "\nwhat explains the difference (predicted − measured, ms per step and rank):\n";
  Table detail({"ranks", "mode", "total", "compute", "core wait", "exposed", "queue wait", "bubble",
                "operations that differ most (predicted / measured)"});
  for (const ComparisonRow& row : comparison.rows) {
    std::vector<OperationTime> operations = row.operations;
    std::sort(operations.begin(), operations.end(), [](const OperationTime& a, const OperationTime& b) {
      return std::abs(a.predicted_ms - a.measured_ms) > std::abs(b.predicted_ms - b.measured_ms);
    });
    std::string differing;
    for (std::size_t i = 0; i < std::min(operations_per_row, operations.size()); ++i)
      differing += fmt::format("{}{} {:.2f}/{:.2f}", i == 0 ? "" : ", ", operations[i].name, operations[i].predicted_ms,
                               operations[i].measured_ms);
    detail.add_row({std::to_string(row.ranks), row.mode,
                    fmt::format("{:+.1f}", row.predicted_ms - row.measured_median_ms()),
                    fmt::format("{:+.1f}", row.predicted.compute - row.measured.compute),
                    fmt::format("{:+.1f}", row.predicted.core_wait - row.measured.core_wait),
                    fmt::format("{:+.1f}", row.predicted.exposed - row.measured.exposed),
                    fmt::format("{:+.1f}", row.predicted.queue_wait - row.measured.queue_wait),
                    fmt::format("{:+.1f}", row.predicted.bubble - row.measured.bubble), differing});
  }
  text += detail.text();
  if (const Table advice = advice_table(all_advice(comparison)); advice.rows() > 0) text += "\n" + advice.text();
  if (const std::ptrdiff_t hidden = within_noise(comparison); hidden > 0)
    text += fmt::format("no advice on {} {}: the difference from the plain schedule is within the noise\n", hidden,
                        hidden == 1 ? "row" : "rows");
  return text;
}

namespace {

nlohmann::json loads_json(const Comparison& comparison) {
  nlohmann::json loads = nlohmann::json::array();
  for (const auto& [ranks, load] : comparison.loads)
    if (load.cores > 0)
      loads.push_back({{"ranks", ranks},
                       {"cores", load.cores},
                       {"others_cores", load.others_cores},
                       {"stolen_cores", load.stolen_cores},
                       {"load_average", load.average},
                       {"programs", load.names}});
  return loads;
}

}  // namespace

nlohmann::json comparison_json(const Comparison& comparison) {
  nlohmann::json rows = nlohmann::json::array();
  const bool is_busy = comparison.is_busy();
  auto parts = [](const BreakdownMs& b) {
    return nlohmann::json{{"compute_ms", known(b.compute)},
                          {"core_wait_ms", known(b.core_wait)},
                          {"exposed_ms", known(b.exposed)},
                          {"queue_wait_ms", known(b.queue_wait)},
                          {"bubble_ms", known(b.bubble)}};
  };
  for (const ComparisonRow& row : comparison.rows) {
    nlohmann::json operations = nlohmann::json::array();
    for (const OperationTime& op : row.operations)
      operations.push_back({{"name", op.name},
                            {"kind", op.kind},
                            {"predicted_ms", known(op.predicted_ms)},
                            {"measured_ms", known(op.measured_ms)}});
    const std::optional<bool> beyond = comparison.is_beyond_noise(row);
    rows.push_back(
        {{"mode", row.mode},
         {"same_as", nullptr},
         {"ranks", row.ranks},
         {"turns", row.measured_ms.size()},
         {"predicted_ms", known(row.predicted_ms)},
         {"measured_ms", known(row.measured_median_ms())},
         {"measured_min_ms", known(minimum(row.measured_ms))},
         {"measured_max_ms", known(maximum(row.measured_ms))},
         {"error_pct", known(is_busy ? kUnknown : row.error_pct())},
         {"exposed_predicted_ms", known(row.predicted.exposed)},
         {"exposed_measured_ms", known(row.measured.exposed)},
         {"saved_predicted_ms", known(comparison.saved_predicted_ms(row))},
         {"saved_measured_ms", known(comparison.saved_measured_ms(row))},
         {"beyond_noise", beyond && !is_busy ? nlohmann::json(*beyond) : nlohmann::json(nullptr)},
         {"loss", known(row.loss)},
         {"advice", is_busy || &row == &comparison.plain_of(row) ? nlohmann::json(nullptr)
                                                                 : advice_json(measured_advice(comparison, row))},
         {"core_speed", row.core_speed},
         {"lost_pct", row.lost_pct},
         {"burst_ms", row.burst_ms},
         {"predicted_as_calibrated_ms", known(row.predicted_as_calibrated_ms)},
         {"breakdown_predicted", parts(row.predicted)},
         {"breakdown_measured", parts(row.measured)},
         {"operations", std::move(operations)}});
    const nlohmann::json first = rows.back();
    for (const std::string& mode : row.equal_modes) {
      rows.push_back(first);
      rows.back()["mode"] = mode;
      rows.back()["same_as"] = row.mode;
    }
  }
  const NoiseFloor noise = comparison.noise_floor();
  const Comparison::Ranking ranking = comparison.ranking();
  return {
      {"platform", comparison.platform},
      {"backend", comparison.on_gpu ? "cuda" : "host"},
      {"rows", std::move(rows)},
      {"noise_pct", known(noise.pct)},
      {"noise_low_pct", known(noise.low_pct)},
      {"noise_high_pct", known(noise.high_pct)},
      {"busy", is_busy},
      {"busy_because", is_busy ? nlohmann::json(busy_text(comparison)) : nlohmann::json(nullptr)},
      {"taken_pct", comparison.taken_pct()},
      {"loads", loads_json(comparison)},
      {"mean_abs_error_pct", known(is_busy ? kUnknown : comparison.mean_abs_error_pct())},
      {"worst_abs_error_pct", known(is_busy ? kUnknown : comparison.worst_abs_error_pct())},
      {"mean_abs_error_as_calibrated_pct", known(is_busy ? kUnknown : comparison.mean_abs_error_as_calibrated_pct())},
      {"ranked_pairs", is_busy ? 0 : ranking.pairs},
      {"ranked_right", is_busy ? 0 : ranking.right},
      {"sgemm_GFLOPs", known(comparison.sgemm_GFLOPs)},
      {"step_GFLOPs", known(comparison.step_GFLOPs)},
      {"notes", comparison.notes}};
}

}  // namespace stretto
