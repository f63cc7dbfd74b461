// Traces of steps that ran on this machine, with injected faults: each is named first, with its size.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
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
constexpr int kIssue_ms = 10;

// A step takes some milliseconds, so that faults of a hundred and more outweigh what the prediction is wrong by.
Scenario scenario_with(const std::string& mode, double link_GBps = 10) {
  Scenario scenario = tiny_scenario(kRanks, mode, "fp32", 12);
  scenario.cluster.ranks_per_device = kRanks;
  scenario.cluster.link_GBps = link_GBps;
  return scenario;
}

using Fault = std::function<void(std::int64_t rank, const Operation& operation)>;

// Runs a step, in which `fault` is called before each operation, and returns its trace. With `in_kernel` the time
// between operations counts for the later one, as if the kernel took it.
std::string traced(const TempDir& folder, const Scenario& scenario, const Fault& fault = {}, bool in_kernel = false) {
  const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario));
  const BoundStep all = unfolded(verified.schedule, verified);
  host::HostOptions options;
  static_cast<exec::RunOptions&>(options) = exec::run_options(scenario);
  options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
    if (fault) fault(rank, verified.schedule.operations[all.programs[std::size_t(rank)].ops[op].op]);
  };
  host::HostExecutor executor(verified, options);
  const exec::MemoryOf memory = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(verified.schedule, scenario, memory);
  exec::write_batch(verified.schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory);
  exec::write_hyper(verified.schedule, scenario, 0, memory);
  Timeline timeline = executor.run(2);
  if (in_kernel)
    for (std::size_t r = 1; r < timeline.rows.size(); ++r) {
      TimelineRow& row = timeline.rows[r];
      const TimelineRow& before = timeline.rows[r - 1];
      const BoundProgram& program = all.programs[std::size_t(row.rank)];
      const BoundOp &now = program.ops[row.op], &last = program.ops[before.op];
      if (before.rank == row.rank && now.lane == last.lane && !is_communication(program.work_of(row.op)))
        row.ready = row.start = row.transfer = std::max(before.end, row.start - from_us(60'000));
    }
  const std::string path = folder.file("trace.json");
  write_trace(path, {{"measured " + scenario.name, &verified.schedule, &all, &timeline}});
  return path;
}

diagnose::Diagnosis diagnosed(const Scenario& scenario, const std::string& trace, double issue_ms = 0) {
  sim::Platform platform =
      sim::read_platform((std::filesystem::path(__FILE__).parent_path() / "golden/host.toml").string());
  platform.op_overhead_us.value += issue_ms * 1e3;
  const diagnose::Traces traces = diagnose::read_traces({trace}, -1, "");
  const predict::PredictedStep step = predict::predict_step(scenario, platform);
  return diagnose::diagnose(step, traces, scenario.name).diagnosis;
}

void check_first(const diagnose::Diagnosis& diagnosis, Cause cause, const std::string& name, double expected_ms) {
  REQUIRE(!diagnosis.gaps.empty());
  const diagnose::Gap& first = diagnosis.gaps.front();
  double sum = 0;
  for (const diagnose::Gap& gap : diagnosis.gaps) sum += gap.gap_ms;
  CAPTURE(first.name, first.gap_ms, expected_ms, diagnosis.gap_ms(), diagnosis.predicted_ms);
  CHECK(std::string(diagnose::name_of(first.cause)) == diagnose::name_of(cause));
  CHECK_THAT(first.name, Contains(name));
  CHECK(first.gap_ms == Approx(expected_ms).epsilon(0.1));
  CHECK(diagnosis.matched >= 0.95);
  CHECK(sum == Approx(diagnosis.gap_ms()).margin(1e-6));
}

}  // namespace

// 12 samples on 2 ranks are 6 micro-batches of 2 layers: 12 calls of 25 ms.
TEST_CASE("a slowed kernel of a run on this machine is named first", "[diagnose]") {
  const TempDir folder;
  const Scenario scenario = scenario_with("plain");
  const std::string trace = traced(
      folder, scenario,
      [](std::int64_t, const Operation& operation) {
        if (operation.name == "fc1.fprop") std::this_thread::sleep_for(milliseconds(25));
      },
      true);
  check_first(diagnosed(scenario, trace), Cause::slower_kernel, "fc1.fprop", 12 * 25);
}

TEST_CASE("a late rank of a run on this machine is named first", "[diagnose]") {
  const TempDir folder;
  const Scenario scenario = scenario_with("plain");
  const std::string trace = traced(folder, scenario, [](std::int64_t rank, const Operation& operation) {
    if (rank == 1 && operation.name == "fc1.fprop") std::this_thread::sleep_for(milliseconds(25));
  });
  check_first(diagnosed(scenario, trace), Cause::straggler, "rank 1", 12 * 25);
}

// Every operation is issued 10 ms late, in the prediction and in the run, so that there is time to hide the reduction
// of gradients in: some 300 ms on a paced link.
TEST_CASE("a lost overlap of a run on this machine is named first", "[diagnose]") {
  const TempDir folder;
  const auto scenario_of = [](const std::string& mode) {
    Scenario scenario = scenario_with(mode, 3e-5);
    scenario.training.global_batch_size = 2;
    scenario.overlap.bucket_size = 1500;
    return scenario;
  };
  const Scenario with = scenario_of("overlap_grad_reduce"), without = scenario_of("plain");
  const std::string trace = traced(
      folder, without, [](std::int64_t, const Operation&) { std::this_thread::sleep_for(milliseconds(kIssue_ms)); });
  const diagnose::Diagnosis diagnosis = diagnosed(with, trace, kIssue_ms);
  const double lost_ms = diagnosed(without, trace, kIssue_ms).predicted_ms - diagnosis.predicted_ms;
  CHECK(lost_ms > 200);
  check_first(diagnosis, Cause::exposed_communication, "dp reduce_scatter", lost_ms);
}

}  // namespace stretto::testing
