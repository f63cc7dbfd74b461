#include "calibrate/probes/run.hpp"

#include "base/steal.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/host/executor.hpp"
#include "model/schedule/verify.hpp"

namespace stretto::calibrate {

Machine host_machine(int cores) {
  return {[cores](const Schedule& schedule, const MemoryPlan& plan, const ProbeLinks& links) {
    host::HostOptions options;
    options.cores_per_device = cores;
    options.link_GBps = links.GBps;
    options.link_latency_us = links.latency_us;
    return std::make_unique<host::HostExecutor>(schedule, plan, options);
  }};
}

Machine gpu_machine() {
  return {[](const Schedule& schedule, const MemoryPlan& plan, const ProbeLinks& links) {
            cuda::CudaOptions options;
            options.link_GBps = links.GBps;
            options.link_latency_us = links.latency_us;
            return cuda::make_cuda_executor(schedule, plan, options);
          },
          2};
}

Machine nccl_machine(launch::ProcessGroup& processes) {
  return {[&processes](const Schedule& schedule, const MemoryPlan& plan, const ProbeLinks&) {
            cuda::CudaOptions options;
            options.processes = &processes;
            return cuda::make_cuda_executor(schedule, plan, options);
          },
          2, false};
}

ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const ProbeLinks& links, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare) {
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  const std::unique_ptr<exec::Executor> executor = machine.make(schedule, plan, links);
  if (prepare) prepare(*executor);
  if (warmup > 0) executor->run(warmup);
  ProbeRun run;
  run.programs = executor->programs();
  Undisturbed undisturbed(machine.repeats_disturbed ? 3 : 0);
  undisturbed([&] {
    run.timelines.clear();
    for (int i = 0; i < repeats; ++i) run.timelines.push_back(executor->run(machine.steps));
  });
  return run;
}

}  // namespace stretto::calibrate
