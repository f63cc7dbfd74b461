// Tests that a fault on one rank ends the step on all ranks, soon, with an error that says where it happened.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

// A host executor that is ready to run, with the injected fault.
struct Ready {
  Scenario scenario;
  VerifiedSchedule verified;
  const Schedule& schedule = verified.schedule;
  std::unique_ptr<host::HostExecutor> executor;

  Ready(const std::string& mode, host::HostOptions options)
      : Ready(tiny_scenario(3, mode, "fp32", 6), std::move(options)) {}
  Ready(Scenario of, host::HostOptions options)
      : scenario(std::move(of)), verified(plan_and_verify(build_schedule(scenario))) {
    executor = std::make_unique<host::HostExecutor>(verified, std::move(options));
    exec::initialise_state(schedule, scenario, memory());
    exec::write_batch(schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory());
    exec::write_hyper(schedule, scenario, 0, memory());
  }
  exec::MemoryOf memory() {
    return [this](std::int64_t rank) -> host::RankMemory& { return executor->memory(rank); };
  }

  // Returns the index of an operation in a rank's program; without pipeline stages it is the index in every rank's
  // program.
  std::uint32_t op(const std::string& name, std::int64_t rank = 0) const {
    const BoundProgram program = bind(schedule, rank);
    for (std::uint32_t i = 0; i < program.ops.size(); ++i)
      if (schedule.operations[program.ops[i].op].name == name) return i;
    throw std::logic_error("no operation " + name);
  }

  struct Failure {
    ErrorKind kind = ErrorKind::input;
    std::string message;  // "" when nothing was thrown
    double seconds = 0;
  };
  Failure run(int steps = 1) {
    const auto begin = Clock::now();
    Failure failure;
    try {
      executor->run(steps);
    } catch (const Error& error) {
      failure = {error.kind(), error.what(), 0};
    }
    failure.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return failure;
  }
};

// Three stages; messages in groups, concurrent with each other, or overlapped with compute.
struct Messages {
  const char* name;
  bool batch, overlap;
};
constexpr Messages kMessages[] = {
    {"batched", true, false}, {"side by side", false, false}, {"overlapped", false, true}};
Scenario pipeline_scenario(const Messages& messages) {
  Scenario scenario = layout_scenario({1, 1, false, 3}, "plain", false, "fp32", 1, 6);
  scenario.overlap.batch_p2p_comm = messages.batch;
  scenario.overlap.overlap_p2p_comm = messages.overlap;
  return scenario;
}

constexpr double kPrompt_s = 5;  // far longer than needed, far shorter than the default timeout

}  // namespace

TEST_CASE("an operation that throws on one rank fails the step on all ranks and names the rank") {
  for (const OverlapMode& mode : data_parallel_modes())
    for (const char* name : {"embedding.fprop", "attention.dgrad", "dp.reduce_scatter.b0", "dp.all_reduce_metrics",
                             "adamw.b0", "dp.all_gather.b0"}) {
      INFO(mode.name << ", " << name);
      host::HostOptions options;
      std::atomic<std::uint32_t> victim{0};
      options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
        if (rank == 1 && op == victim) throw std::runtime_error("injected fault");
      };
      Ready ready(mode.name, options);
      victim = ready.op(name);
      const Ready::Failure failure = ready.run();
      CHECK(failure.kind == ErrorKind::runtime);
      CHECK_THAT(failure.message, Contains("rank 1") && Contains("injected fault"));
      CHECK(failure.seconds < kPrompt_s);

      // The executor cannot go on after the failure.
      const Ready::Failure again = ready.run();
      CHECK(again.kind == ErrorKind::runtime);
      CHECK_THAT(again.message, Contains("failed before"));
      CHECK(again.seconds < kPrompt_s);
    }
}

TEST_CASE("a stage that throws fails the step on all stages and names the rank") {
  for (const Messages& messages : kMessages)
    for (const char* name :
         {"ln_1.fprop", "pp.recv_forward", "pp.send_forward", "pp.recv_backward", "pp.send_backward", "fc1.wgrad"}) {
      INFO(messages.name << ", " << name);
      host::HostOptions options;
      std::atomic<std::uint32_t> victim{0};
      options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
        if (rank == 1 && op == victim) throw std::runtime_error("injected fault");
      };
      Ready ready(pipeline_scenario(messages), options);
      victim = ready.op(name, 1);
      const Ready::Failure failure = ready.run();
      CHECK(failure.kind == ErrorKind::runtime);
      CHECK_THAT(failure.message, Contains("rank 1") && Contains("injected fault"));
      CHECK(failure.seconds < kPrompt_s);
      CHECK_THAT(ready.run().message, Contains("failed before"));
    }
}

TEST_CASE("a stage that does not come in time is an error that says who waited for what message") {
  for (const Messages& messages : kMessages) {
    INFO(messages.name);
    constexpr double kTimeout_s = 0.2, kSleep_s = 0.8;
    std::atomic<std::uint32_t> victim{0};
    host::HostOptions options;
    options.timeout_s = kTimeout_s;
    options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
      if (rank == 1 && op == victim) std::this_thread::sleep_for(std::chrono::duration<double>(kSleep_s));
    };
    Ready ready(pipeline_scenario(messages), options);
    victim = ready.op("fc1.fprop", 1);
    const Ready::Failure failure = ready.run();
    CHECK(failure.kind == ErrorKind::runtime);
    CHECK_THAT(failure.message, Catch::Matchers::Matches(
                                    "rank [012]: .*(pp\\.[a-z_]+|fprop|dgrad|wgrad).* waited 0\\.2[0-9]* s for .*"));
    CHECK(failure.seconds >= kTimeout_s);
    CHECK(failure.seconds < kSleep_s + kPrompt_s);
  }
}

TEST_CASE("a fault in a later step of one run fails it too") {
  std::atomic<int> calls{0};
  std::atomic<std::uint32_t> victim{0};
  host::HostOptions options;
  options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
    if (rank == 2 && op == victim && ++calls == 3) throw runtime_failure("injected fault");
  };
  Ready ready("overlap_param_gather", options);
  victim = ready.op("lm_head.dgrad");  // runs once for each micro-batch: the third run is in the second step
  const Ready::Failure failure = ready.run(5);
  CHECK_THAT(failure.message, Contains("rank 2") && Contains("injected fault"));
  CHECK(calls == 3);
}

TEST_CASE("several ranks that fail at once give one error") {
  host::HostOptions options;
  options.before_operation = [](std::int64_t rank, std::uint32_t op) {
    if (op == 20) throw runtime_failure("injected fault on " + std::to_string(rank));
  };
  Ready ready("overlap_grad_reduce", options);
  CHECK_THAT(ready.run().message, Contains("injected fault on"));
}

TEST_CASE("a rank that does not come in time is an error that says who waited for what") {
  for (const OverlapMode& mode : data_parallel_modes()) {
    INFO(mode.name);
    constexpr double kTimeout_s = 0.2, kSleep_s = 0.8;
    std::atomic<std::uint32_t> victim{0};
    host::HostOptions options;
    options.timeout_s = kTimeout_s;
    options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
      if (rank == 1 && op == victim) std::this_thread::sleep_for(std::chrono::duration<double>(kSleep_s));
    };
    Ready ready(mode.name, options);
    victim = ready.op("lm_head.dgrad");
    const Ready::Failure failure = ready.run();
    CHECK(failure.kind == ErrorKind::runtime);
    // The rank's own communication lane waits for it as well: the first lane that times out reports.
    CHECK_THAT(failure.message,
               Catch::Matchers::Matches("rank [012]: .*dp\\.[a-z_0-9.]+ mb 0 waited 0\\.2[0-9]* s for .*"));
    CHECK(failure.seconds >= kTimeout_s);
    CHECK(failure.seconds < kSleep_s + kPrompt_s);
  }
}

TEST_CASE("a rank that throws while others hold or queue for cores fails the step on all ranks") {
  for (const char* name : {"attention.dgrad", "dp.reduce_scatter.b0", "dp.all_gather.b0"}) {
    INFO(name);
    Scenario scenario = tiny_scenario(3, "overlap_param_gather", "fp32", 6);
    scenario.cluster.max_ctas = {{"dp", 2}};
    host::HostOptions options;
    options.cores_per_device = static_cast<int>(cores_needed(build_schedule(scenario)));
    std::atomic<std::uint32_t> victim{0};
    options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
      if (rank == 1 && op == victim) throw std::runtime_error("injected fault");
    };
    Ready ready(scenario, options);
    victim = ready.op(name);
    const Ready::Failure failure = ready.run();
    CHECK_THAT(failure.message, Contains("rank 1") && Contains("injected fault"));
    CHECK(failure.seconds < kPrompt_s);
  }
}

TEST_CASE("channels hold cores from start to end, and carry no more than they do") {
  Scenario scenario = tiny_scenario(2, "plain", "fp32", 2);
  scenario.cluster.max_ctas = {{"dp", 2}};
  const Schedule schedule = build_schedule(scenario);
  host::HostOptions options;
  options.cores_per_device = static_cast<int>(cores_needed(schedule));
  options.link_GBps = 1;
  options.channel_GBps = 0.0001;  // bandwidth of two: 5 us a byte
  Ready ready(scenario, options);
  const Timeline timeline = ready.executor->run(1);
  int slow = 0;
  for (const TimelineRow& row : timeline.rows) {
    const Operation& operation = schedule.operations[ready.executor->programs()[0].ops[row.op].op];
    const auto* collective = std::get_if<Collective>(&operation.work);
    if (!collective) continue;
    INFO(operation.name);
    CHECK(row.start >= row.ready);
    const double bytes = double(collective->elements) * 4 / 2;  // bytes over each edge of a ring of two
    CHECK(to_us(row.end - row.transfer) >= 0.99 * bytes * 5);
    slow += bytes * 5 > 1000;
  }
  CHECK(slow > 0);
  options.cores_per_device -= 1;
  CHECK_THROWS_WITH(host::HostExecutor(ready.verified, options), Contains("channels (dp 2) of 2 ranks"));
}

TEST_CASE("a computation that never ends fails the step, and nobody waits for it") {
  // The lane that does not return uses these objects after the test.
  static const VerifiedSchedule verified = plan_and_verify(build_schedule(tiny_scenario(1, "plain")));
  static std::atomic<bool> released{false};
  const auto begin = std::chrono::steady_clock::now();
  {
    host::HostOptions options;
    options.timeout_s = 0.5;
    options.before_operation = [](std::int64_t, std::uint32_t op) {
      while (op == 0 && !released) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    host::HostExecutor executor(verified, options);
    CHECK_THROWS_WITH(executor.run(1), Catch::StartsWith("rank 0: ") && Catch::Contains(" and does not end"));
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  released = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // objects that the lane still uses must stay
}

TEST_CASE("a rank that is late but within the timeout is no error") {
  host::HostOptions options;
  options.before_operation = [](std::int64_t rank, std::uint32_t op) {
    if (rank == 1 && op == 5) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  Ready ready("overlap_param_gather", options);
  CHECK(ready.run(2).message.empty());
}

TEST_CASE("a token outside the vocabulary is an error that names rank, token and position") {
  Ready ready("overlap_grad_reduce", {});
  const Tensor& tokens = ready.schedule.tensors[ready.schedule.find_tensor("tokens").value()];
  const TensorPlace& place = tokens.places[1];  // second micro-batch
  ready.memory()(2).view<std::int32_t>(ready.schedule, place.storage, place.offset, tokens.elements())[3] = 31;
  const Ready::Failure failure = ready.run();
  CHECK(failure.kind == ErrorKind::runtime);
  CHECK_THAT(failure.message, Contains("rank 2") && Contains("token 31") && Contains("row 3") && Contains("[0, 31)"));
  CHECK(failure.seconds < kPrompt_s);
}

}  // namespace stretto::testing
