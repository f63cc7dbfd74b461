#include "cli/ready_step.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/rng.hpp"
#include "cli/commands.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/host/executor.hpp"
#include "exec/model_state.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/verify.hpp"

namespace stretto::cli {

MakeExecutor on_host(int cores) {
  return [cores](const Scenario& scenario, const Schedule& schedule, const MemoryPlan& plan) {
    host::HostOptions options = host::host_options(scenario);
    options.cores_per_device = cores;
    options.stop = interrupted;
    return std::make_unique<host::HostExecutor>(schedule, plan, options);
  };
}

MakeExecutor on_gpu(launch::ProcessGroup* processes) {
  return [processes](const Scenario& scenario, const Schedule& schedule, const MemoryPlan& plan) {
    cuda::CudaOptions options = cuda::cuda_options(scenario);
    options.processes = processes;
    return cuda::make_cuda_executor(schedule, plan, options);
  };
}

ReadyStep::ReadyStep(const Scenario& given, const MakeExecutor& make, const exec::TokenSource& tokens)
    : scenario(given), schedule(build_schedule(scenario)), plan(plan_and_verify(schedule).plan) {
  executor = make(scenario, schedule, plan);
  programs = executor->programs();
  if (std::ssize(programs) != schedule.mesh.ranks()) {
    programs.clear();
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) programs.push_back(bind(schedule, rank));
  }
  const exec::MemoryOf memory_of = exec::memory_of(*executor);
  exec::initialise_state(schedule, scenario, memory_of);
  exec::write_batch(schedule, scenario, tokens, 0, memory_of);
  exec::write_hyper(schedule, scenario, 0, memory_of);
  executor->upload(exec::Executor::Part::state);
  executor->upload(exec::Executor::Part::inputs);
}

exec::TokenSource tokens_of(const Scenario& scenario) {
  if (!scenario.training.data.empty()) return exec::TokenSource::open(scenario.training.data);
  std::vector<std::byte> bytes(1 << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(random_bits(scenario.training.seed, stream_of("compare"), i) %
                         static_cast<std::uint64_t>(std::min<std::int64_t>(scenario.model.vocab_size, 256)));
  return exec::TokenSource::parse(std::move(bytes), "random.txt");
}

}  // namespace stretto::cli
