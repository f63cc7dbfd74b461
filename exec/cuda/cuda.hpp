#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/launch_plan.hpp"
#include "exec/executor.hpp"
#include "exec/run_options.hpp"
#include "model/verify/verify.hpp"

namespace stretto::cuda {

struct CudaOptions : exec::RunOptions {
  int ctas = 16;  // thread blocks of a communication kernel whose communicator has no channels of its own
};

// Runs a schedule on one GPU, which all ranks share, or one rank of it, where each rank is a process: a stream for each
// lane of a rank, an event for each dependency (launch_plan.hpp), cuBLASLt for GEMMs, cuDNN for attention, our own
// kernels for all other work. Ranks that share a device compete for its SMs and its memory: communication is copies in
// that memory by as many thread blocks as NCCL would have channels. Steps after the first are CUDA graphs.
//
// The CUDA libraries are loaded by the first call (libstretto_cuda.so). Throws Error(runtime), in one line, when this
// build has no CUDA, there is no driver or no device, or the memory does not suffice (before anything runs: how much is
// needed, and by which buffers); Error(input) for types that the device cannot compute (fp64). `verified` must outlive
// the executor.
std::unique_ptr<exec::Executor> make_cuda_executor(const VerifiedSchedule& verified, const CudaOptions& options);

constexpr std::size_t kMostQueues = 32;  // hardware queues that a GPU can have
// Gives every stream a hardware queue of its own, as far as there are enough, by CUDA_DEVICE_MAX_CONNECTIONS; a value
// in the environment is left alone. Call it before any other use of CUDA. Returns a line when streams will share
// queues, otherwise "".
std::string reserve_hardware_queues(std::size_t streams);

// The programs of the ranks in this process, all or one, and the plan of their launches. Throws Error(runtime) when
// NCCL cannot execute the order of joined messages (require_one_order).
struct RanksHere {
  std::vector<BoundProgram> programs;
  LaunchPlan launches;
};
RanksHere ranks_here(const VerifiedSchedule& verified, launch::ProcessGroup* processes);

// The module's only export. The module contains no code of other folders: it links to the program's.
using MakeCudaExecutor = exec::Executor*(const Schedule& schedule, const MemoryPlan& plan, const CudaOptions& options,
                                         std::vector<BoundProgram> programs, LaunchPlan launches);

// Returns the bytes on a device of `ranks` ranks that are not in the memory plan: scratch and cuBLAS's workspace, for
// each lane of each rank.
std::int64_t overhead_bytes(const Schedule& schedule, std::int64_t ranks);
// Returns a role's largest storages, for "out of memory" messages: "x 1.2 GiB, logits 0.8 GiB, …".
std::string largest_storages(const Schedule& schedule, const RolePlan& role, std::size_t count = 5);

}  // namespace stretto::cuda

extern "C" stretto::cuda::MakeCudaExecutor stretto_make_cuda_executor;
