#pragma once
#include <memory>
#include <utility>
#include <vector>

#if !defined(STRETTO_ON_GPU)
#include "tests/as_processes.hpp"
#endif
#include "exec/cuda/cuda.hpp"
#include "exec/trainer.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

// A scenario on the executor for GPUs: on a GPU in gpu_tests (STRETTO_ON_GPU), everywhere else on the fake device. All
// ranks share it, or `processes` has one of them.
struct OnFakeGpu {
  Scenario scenario;
  VerifiedSchedule verified;
  const Schedule& schedule = verified.schedule;
  std::unique_ptr<exec::Executor> executor;

  explicit OnFakeGpu(const Scenario& s, bool graphs = true, launch::ProcessGroup* processes = nullptr)
      : scenario(s), verified(plan_and_verify(build_schedule(s))) {
    cuda::CudaOptions options{exec::run_options(scenario)};
    options.ctas = 2;
    options.graphs = graphs;
    options.processes = processes;
    cuda::RanksHere here = cuda::ranks_here(verified, processes);
    executor.reset(stretto_make_cuda_executor(schedule, verified.plan, options, std::move(here.programs),
                                              std::move(here.launches)));
  }
  exec::MemoryOf memory_of() { return exec::memory_of(*executor); }
  Trained train(int steps, [[maybe_unused]] launch::ProcessGroup* processes = nullptr) {
    using Contents = exec::Executor::Contents;
    exec::initialise_state(schedule, scenario, memory_of());
    executor->upload(Contents::state);
    const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
    Trained trained;
    for (int step = 0; step < steps; ++step) {
      exec::write_batch(schedule, scenario, tokens, step, memory_of());
      exec::write_hyper(schedule, scenario, step, memory_of());
      executor->upload(Contents::inputs);
      executor->run(1);
      executor->download(Contents::results);
      trained.losses.push_back(exec::read_metrics(schedule, memory_of(), executor->programs().front().rank).loss);
    }
    executor->download(Contents::all);
    const auto gather = [&](StatePart part) {
#if !defined(STRETTO_ON_GPU)
      if (processes) return gather_from_all(schedule, memory_of(), part, *processes);
#endif
      return exec::gather_state(schedule, memory_of(), part);
    };
    trained.gradients = gather(StatePart::gradients);
    trained.parameters = gather(StatePart::parameters);
    return trained;
  }
};

}  // namespace stretto::testing
