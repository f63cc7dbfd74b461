#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "exec/cuda/cuda.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/machine.hpp"
#include "model/schedule/bind.hpp"

// The emulated device as a machine. Its times are meaningless. Not available where __SANITIZE_ADDRESS__ is set.
namespace stretto::testing {

inline std::unique_ptr<exec::Executor> on_fake_gpu(const VerifiedSchedule& verified, cuda::CudaOptions options) {
  cuda::RanksHere here = cuda::ranks_here(verified, options.processes);
  options.ctas = 2;
  return std::unique_ptr<exec::Executor>(stretto_make_cuda_executor(
      verified.schedule, verified.plan, options, std::move(here.programs), std::move(here.launches)));
}

// One device that all ranks share, or one for each process, with the NCCL between threads.
inline exec::Machine fake_gpu(launch::ProcessGroup* processes = nullptr) {
  const auto make = [=](const VerifiedSchedule& verified, exec::RunOptions options) {
    options.processes = processes;
    return on_fake_gpu(verified, {options});
  };
  return {make, 2, processes};
}

}  // namespace stretto::testing
