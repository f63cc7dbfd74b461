// Traces of steps that ran on this machine, with injected faults: each is named first, with its size. They need the
// machine for themselves; diagnose/diagnose_test.cpp has traces of Stretto's that are simulated.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <thread>

#include "diagnose/diagnose.hpp"
#include "model/build_schedule.hpp"
#include "report/trace.hpp"
#include "tests/temp_dir.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using Catch::Matchers::Contains;
using diagnose::Cause;
using std::chrono::milliseconds;

constexpr std::int64_t kRanks = 2;

// A step takes some milliseconds, so that faults of a hundred and more outweigh what the prediction is wrong by.
Scenario scenario_with(const std::string& mode, double link_GBps = 10) {
  Scenario scenario = tiny_scenario(kRanks, mode, "fp32", 12);
  scenario.cluster.ranks_per_device = kRanks;
  scenario.cluster.link_GBps = link_GBps;
  return scenario;
}

// Returns how long the operation is delayed, in milliseconds.
using Fault = std::function<int(std::int64_t rank, const Operation& operation)>;

// A trace of one step, and what the delays in it really took: a busy machine sleeps longer.
struct Traced {
  std::string path;
  double most_ms = 0;  // of the rank with most
  double mean_ms = 0;  // of one delay
};

// Runs a step in which operations are delayed. With `in_kernel` the time between operations counts for the later one,
// as if the kernel took it.
Traced traced(const TempDir& folder, const Scenario& scenario, const Fault& fault, bool in_kernel = false) {
  const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario));
  const BoundStep all = unfolded(verified.schedule, verified);
  std::mutex mutex;  // guards the two below: lanes are threads
  std::vector<double> delayed_ms(std::size_t{kRanks});
  int delays = 0;
  host::HostOptions options;
  static_cast<exec::RunOptions&>(options) = exec::run_options(scenario);
  options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
    const int wanted = fault(rank, verified.schedule.operations[all.programs[std::size_t(rank)].ops[op].op]);
    if (wanted == 0) return;
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(milliseconds(wanted));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const std::lock_guard lock(mutex);
    delayed_ms[std::size_t(rank)] += took.count();
    ++delays;
  };
  host::HostExecutor executor(verified, options);
  const exec::MemoryOf memory = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(verified.schedule, scenario, memory);
  exec::write_batch(verified.schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory);
  exec::write_hyper(verified.schedule, scenario, 0, memory);
  Timeline timeline = executor.run(1);
  if (in_kernel)
    for (std::size_t r = 1; r < timeline.rows.size(); ++r) {
      TimelineRow& row = timeline.rows[r];
      const TimelineRow& before = timeline.rows[r - 1];
      const BoundProgram& program = all.programs[std::size_t(row.rank)];
      const bool follows = before.rank == row.rank && program.ops[row.op].lane == program.ops[before.op].lane;
      if (follows && fault(row.rank, verified.schedule.operations[program.ops[row.op].op]) > 0)
        row.ready = row.start = row.transfer = before.end;
    }
  Traced result;
  result.path = folder.file("trace.json");
  result.most_ms = *std::max_element(delayed_ms.begin(), delayed_ms.end());
  result.mean_ms = std::accumulate(delayed_ms.begin(), delayed_ms.end(), 0.0) / std::max(1, delays);
  write_trace(result.path, {{"measured " + scenario.name, &verified.schedule, &all, &timeline}});
  return result;
}

// Traces a run in which no other process delayed the 12 sleeps of 25 ms: a machine that is busy makes them longer, on
// one rank more than on the other.
Traced undisturbed(const TempDir& folder, const Scenario& scenario, const Fault& fault, bool in_kernel = false) {
  for (int attempt = 1;; ++attempt) {
    const Traced run = traced(folder, scenario, fault, in_kernel);
    if (run.most_ms < 1.05 * 12 * 25 || attempt == 8) return run;
  }
}

diagnose::Diagnosis diagnosed(const Scenario& scenario, const std::string& trace, double issue_ms = 0) {
  sim::Platform platform =
      sim::read_platform((std::filesystem::path(__FILE__).parent_path() / "golden/host.toml").string());
  platform.op_overhead_us.value += issue_ms * 1e3;
  const diagnose::Traces traces = diagnose::read_traces({trace}, -1, "");
  const predict::PredictedStep step = predict::predict_step(scenario, platform);
  return diagnose::diagnose(step, traces, scenario.name, false).diagnosis;
}

void check_first(const diagnose::Diagnosis& diagnosis, Cause cause, const std::string& name, double expected_ms) {
  REQUIRE(!diagnosis.gaps.empty());
  const diagnose::Gap& first = diagnosis.gaps.front();
  double sum = 0;
  for (const diagnose::Gap& gap : diagnosis.gaps) {
    sum += gap.gap_ms;
    // A run on cores gets no advice for a GPU or a framework's flags.
    CHECK_THAT(gap.advice, !Contains("nvidia-smi") && !Contains("CUDA") && !Contains("--overlap"));
  }
  CAPTURE(first.name, first.gap_ms, expected_ms, diagnosis.gap_ms(), diagnosis.predicted_ms);
  CHECK(std::string(diagnose::name_of(first.cause)) == diagnose::name_of(cause));
  CHECK_THAT(first.name, Contains(name));
  CHECK(first.gap_ms == Approx(expected_ms).epsilon(0.1));
  CHECK(diagnosis.matched >= 0.95);
  CHECK(sum == Approx(diagnosis.gap_ms()).margin(1e-6));
}

}  // namespace

// 12 samples on 2 ranks are 6 micro-batches of 2 layers: 12 calls of 25 ms.
TEST_CASE("a slowed kernel of a run on this machine is named first", "[diagnose][speed]") {
  const TempDir folder;
  const Scenario scenario = scenario_with("plain");
  const auto fault = [](std::int64_t, const Operation& operation) { return operation.name == "fc1.fprop" ? 25 : 0; };
  const Traced run = undisturbed(folder, scenario, fault, true);
  check_first(diagnosed(scenario, run.path), Cause::slower_kernel, "fc1.fprop", run.most_ms);
}

TEST_CASE("a late rank of a run on this machine is named first", "[diagnose][speed]") {
  const TempDir folder;
  const Scenario scenario = scenario_with("plain");
  const Traced run = undisturbed(folder, scenario, [](std::int64_t rank, const Operation& operation) {
    return rank == 1 && operation.name == "fc1.fprop" ? 25 : 0;
  });
  check_first(diagnosed(scenario, run.path), Cause::straggler, "rank 1", run.most_ms);
}

}  // namespace stretto::testing
