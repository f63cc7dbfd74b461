#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "exec/cuda/cuda.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/machine.hpp"
#include "model/schedule/bind.hpp"

// The emulated device as a machine. Its times mean nothing. Not where __SANITIZE_ADDRESS__ is.
namespace stretto::testing {

inline std::unique_ptr<exec::Executor> on_fake_gpu(const Schedule& schedule, const MemoryPlan& plan,
                                                   cuda::CudaOptions options) {
  std::vector<BoundProgram> programs;
  cuda::LaunchPlan launches;
  if (options.processes) {
    programs.push_back(bind(schedule, options.processes->rank()));
    launches = cuda::plan_launches_of_rank(schedule, programs.front());
  } else {
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) programs.push_back(bind(schedule, rank));
    launches = cuda::plan_launches(schedule, programs);
  }
  options.ctas = 2;
  return std::unique_ptr<exec::Executor>(
      stretto_make_cuda_executor(schedule, plan, options, std::move(programs), std::move(launches)));
}

// That all ranks share, or one for each process, with the NCCL between threads.
inline exec::Machine fake_gpu(launch::ProcessGroup* processes = nullptr) {
  const auto make = [=](const Schedule& schedule, const MemoryPlan& plan, exec::RunOptions options) {
    options.processes = processes;
    return on_fake_gpu(schedule, plan, {options});
  };
  return {make, 2, processes};
}

}  // namespace stretto::testing
