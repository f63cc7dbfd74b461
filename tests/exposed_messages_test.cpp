// Tests of exposed communication in pipelines whose messages are joined in groups (batch_p2p_comm): a message counts
// while it moves itself, and waiting for the peers of other messages is bubble. Simulated and run.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "exec/host/executor.hpp"
#include "model/verify/verify.hpp"
#include "report/exposure.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

Scenario pipeline(bool batch, std::int64_t stages, std::int64_t micro_batches) {
  Scenario scenario = layout_scenario({1, 1, false, stages, 2}, "plain", false, "fp32", 1, micro_batches);
  scenario.model.num_layers = 2 * stages;
  scenario.overlap.batch_p2p_comm = batch;
  return scenario;
}

Breakdown simulated(bool batch, std::int64_t stages, std::int64_t micro_batches, Time message) {
  Ideal ideal(pipeline(batch, stages, micro_batches));
  ideal.set("fc1.fprop", 1001);
  ideal.set("fc1.dgrad", 1999);
  for (const char* name : {"pp.send_forward", "pp.recv_forward", "pp.send_backward", "pp.recv_backward"})
    ideal.set(name, message);
  const sim::SimResult result = ideal.run();
  return mean_breakdown(ideal.schedule, result.programs, result.timeline);
}

}  // namespace

TEST_CASE("joined messages that take no time are not exposed", "[exposure]") {
  for (const std::int64_t stages : {2, 3})
    for (const std::int64_t micro_batches : {2, 8}) {
      INFO(stages << " stages, " << micro_batches * stages << " micro-batches");
      const Breakdown batched = simulated(true, stages, micro_batches * stages, 0),
                      alone = simulated(false, stages, micro_batches * stages, 0);
      CHECK(batched.exposed_total == 0);
      CHECK(alone.exposed_total == 0);
      CHECK(batched.bubble == alone.bubble);
      // Messages cost at most the time of all of them one after the other, on the stage that has most.
      constexpr Time kMessage = 100;
      const Time most = 2 * 2 * 2 * micro_batches * stages * kMessage;
      CHECK(simulated(true, stages, micro_batches * stages, kMessage).exposed_total <= most);
      CHECK(simulated(true, stages, micro_batches * stages, kMessage).exposed_total > 0);
    }
}

TEST_CASE("joined messages that wait for a slow stage are bubble, as measured", "[exposure]") {
  const Scenario scenario = pipeline(true, 2, 4);
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  const BoundProgram slow = bind(schedule, 1);
  host::HostOptions options;
  options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
    if (rank == 1 && schedule.operations[slow.ops[op].op].name.starts_with("fc1."))
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
  };
  host::HostExecutor executor(verified, options);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  exec::write_batch(schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory_of);
  exec::write_hyper(schedule, scenario, 0, memory_of);
  const Timeline timeline = executor.run(1);
  const Breakdown b = breakdown(schedule, executor.programs().front(), timeline);
  CHECK(b.exposed_total < b.bubble / 4);
  for (const TimelineRow& row : timeline.rows) {
    CHECK(row.waited >= 0);
    CHECK(row.transfer <= row.moved());
  }
}

}  // namespace stretto::testing
