#include "exec/machine.hpp"

#include <utility>

#include "exec/cuda/cuda.hpp"
#include "exec/host/executor.hpp"

namespace stretto::exec {

Machine host_machine(int cores, std::function<bool()> stop, launch::ProcessGroup* processes) {
  const auto make = [=](const VerifiedSchedule& verified, RunOptions run) {
    host::HostOptions options{run};
    options.processes = processes;
    options.cores_per_device = cores;
    options.stop = stop;
    return std::make_unique<host::HostExecutor>(verified, std::move(options));
  };
  return {make, 1, processes};
}

Machine gpu_machine(launch::ProcessGroup* processes) {
  const auto make = [=](const VerifiedSchedule& verified, RunOptions run) {
    cuda::CudaOptions options{run};
    options.processes = processes;
    return cuda::make_cuda_executor(verified, options);
  };
  return {make, 2, processes};
}

}  // namespace stretto::exec
