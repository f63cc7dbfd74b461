// Tests that ranks in processes of their own train what ranks in one process train.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <mutex>

#include "exec/comm/wires.hpp"
#include "exec/trainer.hpp"
#include "tests/as_processes.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

constexpr int kStepsApart = 2;

// Returns the results at rank 0.
Trained train_as_processes(const Scenario& scenario) {
  Trained trained;
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
  const std::vector<std::string> errors = as_processes(schedule.mesh.ranks(), 60, [&](launch::ProcessGroup& group) {
    host::HostOptions options;
    options.processes = &group;
    host::HostExecutor executor(verified, options);
    const exec::MemoryOf memory_of = exec::memory_of(executor);
    exec::initialise_state(schedule, scenario, memory_of);
    std::vector<double> losses, norms;
    for (int step = 0; step < kStepsApart; ++step) {
      exec::write_batch(schedule, scenario, tokens, step, memory_of);
      exec::write_hyper(schedule, scenario, step, memory_of);
      executor.run(1);
      const exec::StepMetrics metrics = exec::read_metrics(schedule, memory_of, group.rank());
      losses.push_back(metrics.loss);
      norms.push_back(metrics.gradient_norm);
    }
    std::vector<exec::FullTensor> gradients = gather_from_all(schedule, memory_of, StatePart::gradients, group);
    std::vector<exec::FullTensor> parameters = gather_from_all(schedule, memory_of, StatePart::parameters, group);
    if (group.rank() == 0) trained = {losses, norms, std::move(gradients), std::move(parameters), {}};
  });
  for (const std::string& error : errors) CHECK(error.empty());
  return trained;
}

}  // namespace

TEST_CASE("ranks in processes of their own: the same bits as in one, in every mode and layout", "[processes]") {
  Cases cases;
  for (const Layout& layout : {Layout{2, 1}, Layout{3, 1}, Layout{1, 2, true}, Layout{1, 1, false, 3},
                               Layout{2, 2, true}, Layout{2, 1, false, 2, 3}, Layout{1, 2, false, 2}})
    for (const OverlapMode& mode : overlap_modes()) {
      for (const std::string precision : {"fp64", "bf16"}) {
        Scenario scenario = layout_scenario(layout, mode.name, layout.tp > 1 && layout.pp > 1, precision);
        if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
        INFO(layout.text() << ", " << mode.name << ", " << precision);
        const Trained together = train(scenario, kStepsApart, true), apart = train_as_processes(scenario);
        CHECK(apart.losses == together.losses);
        CHECK(apart.norms == together.norms);
        CHECK(same_bits(apart.gradients, together.gradients));
        CHECK(same_bits(apart.parameters, together.parameters));
      }
    }
}

TEST_CASE("a rank that fails, hangs or is lost fails those in other processes", "[processes]") {
  const Scenario scenario = tiny_scenario(3, "overlap_grad_reduce");
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  enum class Fault { throws, hangs, vanishes };
  for (const Fault fault : {Fault::throws, Fault::hangs, Fault::vanishes}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<std::string> errors = as_processes(3, 30, [&](launch::ProcessGroup& group) {
      host::HostOptions options;
      options.processes = &group;
      options.timeout_s = fault == Fault::hangs ? 2 : 30;  // other processes may be slow on a busy machine
      options.before_operation = [&](std::int64_t rank, std::uint32_t op) {
        if (rank != 1 || op != 10) return;
        if (fault == Fault::throws) throw runtime_failure("out of luck");
        if (fault == Fault::hangs) std::this_thread::sleep_for(std::chrono::seconds(5));
        if (fault == Fault::vanishes) group.fail("it was lost");  // as a broken connection would report
      };
      host::HostExecutor executor(verified, options);
      const exec::MemoryOf memory_of = exec::memory_of(executor);
      exec::initialise_state(schedule, scenario, memory_of);
      exec::write_batch(schedule, scenario, tiny_tokens(scenario.model.vocab_size), 0, memory_of);
      exec::write_hyper(schedule, scenario, 0, memory_of);
      try {
        executor.run(1);
        group.barrier();
      } catch (const Error& error) {
        group.fail(error.what());
        throw;
      }
    });
    const double took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK(took_s < 20);
    for (const std::size_t rank : {0, 2}) {
      INFO(errors[rank]);
      if (fault == Fault::throws) CHECK(errors[rank] == "rank 1: out of luck");
      // The process that noticed first reports.
      if (fault == Fault::hangs) CHECK_THAT(errors[rank], Catch::Contains("waited 2") && Catch::Contains("for rank"));
      if (fault == Fault::vanishes) CHECK(errors[rank] == "rank 1: it was lost");
    }
  }
}

TEST_CASE("connections between ranks: given up when the group fails, and not because a rank is slow", "[processes]") {
  const Schedule schedule = build_schedule(tiny_scenario(3, "plain"));
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> errors = as_processes(3, 30, [&](launch::ProcessGroup& group) {
    const BoundProgram program = bind(schedule, group.rank());
    {
      const wire::Wires wires(group, schedule, program, 30);
      const std::int64_t peer = group.rank() == 0 ? 1 : 0;
      for (const BoundOp& op : program.ops)
        if (const auto* collective = std::get_if<Collective>(&schedule.operations[op.op].work)) {
          unsigned unanswered_ms = 1;
          socklen_t size = sizeof unanswered_ms;
          ::getsockopt(wires.to(collective->communicator, peer).descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT,
                       &unanswered_ms, &size);
          if (unanswered_ms != 0) throw runtime_failure("what is not read for 10 s closes the connection");
        }
      group.barrier();
    }
    if (group.rank() == 2) {
      const std::string nobody = "1 127.0.0.1";
      group.all_gather(std::as_bytes(std::span(nobody)), 256);
      group.fail("out of luck");
      return;
    }
    const wire::Wires wires(group, schedule, program, 30);
  });
  CHECK(errors[0] == "rank 2: out of luck");
  CHECK(errors[1] == "rank 2: out of luck");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

}  // namespace stretto::testing
