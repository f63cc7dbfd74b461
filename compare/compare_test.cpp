// Tests the main job without a command line: a tiny model on this machine's cores, against the golden platform.
#include "compare/compare.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/statistics.hpp"
#include "compare/conditions.hpp"
#include "compare/grid.hpp"
#include "compare/profile_step.hpp"
#include "predict/predict_modes.hpp"
#include "tests/training.hpp"

namespace stretto::compare {
namespace {

using Catch::Matchers::Contains;

const sim::Platform& platform() {
  static const sim::Platform the_platform =
      sim::read_platform((std::filesystem::path(__FILE__).parent_path() / "../tests/golden/host.toml").string());
  return the_platform;
}

Scenario scenario_of(std::vector<std::int64_t> ranks, std::int64_t repeats) {
  Scenario scenario = testing::tiny_scenario(2, "plain", "fp32", 6);
  scenario.file = "tiny.toml";
  scenario.compare.ranks = std::move(ranks);
  scenario.compare.repeats = repeats;
  return scenario;
}

Grid grid_of(const Scenario& scenario) { return compare::grid_of(scenario, platform(), exec::host_machine(2)); }

// `stop` is asked before each turn, including the warm-up.
Result run(const Scenario& scenario, int turns = 1 << 20) {
  return compare::run(
      scenario, platform(), exec::host_machine(2), [](const std::string&) {}, [&] { return turns-- <= 0; });
}

std::vector<std::string> modes_of_rows(const Result& result, std::int64_t ranks) {
  std::vector<std::string> modes;
  for (const ComparisonRow& row : result.comparison.rows)
    if (row.ranks == ranks) modes.push_back(row.mode);
  return modes;
}

const std::vector<std::string> kDataParallel = {"plain", "overlap_grad_reduce", "overlap_param_gather"};

}  // namespace

TEST_CASE("what is compared: the modes of the layout, the plain one first, and the scenario where it is none of them",
          "[compare]") {
  Scenario scenario = scenario_of({}, 1);
  CHECK(grid_of(scenario).modes == kDataParallel);
  CHECK(grid_of(scenario).ranks == std::vector<std::int64_t>{2});
  scenario.compare.modes = {"overlap_param_gather", "plain", kAsGiven};
  CHECK(grid_of(scenario).modes == std::vector<std::string>{"plain", "overlap_param_gather", kAsGiven});
  scenario.compare.modes = {"overlap_grad_reduce"};
  CHECK(grid_of(scenario).modes == std::vector<std::string>{"plain", "overlap_grad_reduce"});

  // A note names a mode that is off; a knob that is off in the plain schedule too gets no note for the mode.
  scenario.overlap.overlap_grad_reduce = scenario.overlap.align_param_gather = true;
  scenario.compare.ranks = {1};
  const Grid one = grid_of(scenario);
  CHECK_THAT(one.notes.at(0), Contains("overlap_grad_reduce at 1 rank: overlap_grad_reduce is off: "
                                       "data_parallel_size x context_parallel_size is 1"));
  CHECK(one.notes.size() == 1);

  scenario.compare = {};
  scenario.parallel.pipeline_model_parallel_size = 2;
  scenario.overlap.overlap_p2p_comm = true;
  const Grid both = grid_of(scenario);
  std::vector<std::string> modes = kDataParallel;
  modes.insert(modes.end(), {"overlap_p2p_comm", kAsGiven});
  CHECK(both.modes == modes);
  CHECK(both.ranks == std::vector<std::int64_t>{4});
  CHECK(both.streams >= 4 * 3);
  for (const std::string& note : both.notes) CHECK_THAT(note, !Contains("overlap_p2p_comm is off"));
  // For each row the schedule is also predicted without running anything.
  const std::vector<predict::PredictedMode> predicted = predict::predict_modes(scenario, platform(), {});
  REQUIRE(predicted.size() == modes.size());
  for (std::size_t i = 0; i < modes.size(); ++i) CHECK(predicted[i].mode == modes[i]);

  scenario.compare.ranks = {3};
  CHECK_THROWS_WITH(grid_of(scenario),
                    "tiny.toml: [compare] ranks: expected multiples of tensor_model_parallel_size x "
                    "context_parallel_size x pipeline_model_parallel_size = 2, got 3");
  scenario.compare.modes = {"plian"};
  CHECK_THROWS_WITH(grid_of(scenario), Contains("tiny.toml: [compare] modes") && Contains("did you mean \"plain\"?"));
}

TEST_CASE("every mode at every number of ranks is predicted and measured", "[compare]") {
  const Result result = run(scenario_of({1, 2}, 3));
  const Comparison& comparison = result.comparison;
  CHECK(result.complete);
  CHECK_FALSE(comparison.on_gpu);
  // On one rank all modes have one schedule, which is measured once.
  CHECK(modes_of_rows(result, 1) == std::vector<std::string>{"plain"});
  CHECK(comparison.rows[0].equal_modes == std::vector<std::string>{"overlap_grad_reduce", "overlap_param_gather"});
  CHECK(modes_of_rows(result, 2) == kDataParallel);
  std::map<std::int64_t, std::set<double>> losses;
  for (const ComparisonRow& row : comparison.rows) {
    INFO(row.mode << " at " << row.ranks);
    CHECK(row.predicted_ms > 0);
    CHECK(row.predicted_as_calibrated_ms > 0);
    CHECK(row.core_speed > 0);
    CHECK(row.measured_ms.size() == 3);
    CHECK(row.measured_median_ms() > 0);
    for (const OperationTime& operation : row.operations) {
      CHECK(operation.predicted_ms > 0);
      CHECK(operation.measured_ms > 0);
    }
    losses[row.ranks].insert(row.loss);
    CHECK(comparison.is_beyond_noise(row).has_value() == (row.mode != "plain"));
  }
  // Overlap changes when operations run, never the training results.
  CHECK(losses[1].size() == 1);
  CHECK(losses[2].size() == 1);
  CHECK(comparison.noise.size() == 2);
  CHECK(comparison.runs == 3 * (2 + 4));
  CHECK(comparison.sgemm_GFLOPs > 0);
  CHECK(comparison.step_GFLOPs > 0);
  REQUIRE(result.timelines.size() == comparison.rows.size());
  for (std::size_t i = 0; i < result.timelines.size(); ++i) {
    const RowTimelines& kept = result.timelines[i];
    const ComparisonRow& row = comparison.rows[i];
    CHECK(kept.mode == row.mode);
    CHECK(to_ms(kept.measured.step_end - kept.measured.step_begin) == Approx(row.measured_median_ms()));
    std::size_t operations = 0;
    for (const BoundProgram& program : kept.measured_step.programs) operations += program.ops.size();
    CHECK(kept.measured.rows.size() == operations);
    CHECK_FALSE(kept.predicted.rows.empty());
  }
}

TEST_CASE("whoever is interrupted has what was finished", "[compare]") {
  // One turn of the first number of ranks is complete; the second number has no measurements and gets no rows.
  const Result some = run(scenario_of({2, 1}, 100), 2);
  CHECK_FALSE(some.complete);
  CHECK(modes_of_rows(some, 2) == kDataParallel);
  CHECK(some.comparison.rows.size() == kDataParallel.size());
  for (const ComparisonRow& row : some.comparison.rows) {
    CHECK(row.measured_ms.size() == 1);
    CHECK(row.measured_ms[0] > 0);
  }
  CHECK(std::isnan(some.comparison.step_GFLOPs));  // rate of one rank
  const Result nothing = run(scenario_of({2}, 100), 1);
  CHECK_FALSE(nothing.complete);
  CHECK(nothing.comparison.rows.empty());
  CHECK(nothing.comparison.noise.empty());
}

TEST_CASE("a step is profiled: where its time goes, turn by turn", "[compare]") {
  const Scenario scenario = scenario_of({}, 1);
  exec::ReadyStep step(scenario, build_schedule(scenario), exec::host_machine(2), exec::run_options(scenario),
                       exec::tokens_of(scenario));
  int left = 3;  // the warm-up and two turns
  const auto profile = [&] {
    return profile_step(
        step, 100, nullptr, [](const std::string&) {}, [&] { return left-- <= 0; });
  };
  const ProfiledStep measured = profile();
  CHECK_FALSE(measured.complete);
  const Profile& p = measured.profile;
  CHECK(p.device == "this host");
  CHECK(p.peak.GFLOPs > 0);
  REQUIRE(p.step_ms.size() == 2);
  REQUIRE(p.timed_step_ms.size() == 2);
  CHECK(to_ms(measured.middle.step_end - measured.middle.step_begin) == Approx(maximum(p.timed_step_ms)));
  REQUIRE_FALSE(p.operations.empty());
  for (const ProfiledOperation& operation : p.operations) {
    INFO(operation.name);
    CHECK(operation.us > 0);
    CHECK(operation.floor.us <= operation.us);
  }
  CHECK(p.path_operations > 0);
  CHECK(p.path_compute_ms > 0);
  left = 1;
  CHECK(profile().profile.step_ms.empty());
}

TEST_CASE("the speed of the cores is corrected where readings differ from those at calibration", "[compare]") {
  CHECK(speed_against({90, 100, 110, 120}, 100) == 1);
  CHECK(speed_against({40, 50, 50, 60}, 100) == 0.5);
  CHECK(speed_against({200}, 100) == 2);
}

}  // namespace stretto::compare
