#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/cuda.hpp"
#include "exec/cuda/kernels/stream.hpp"
#include "exec/cuda/launch_plan.hpp"
#include "exec/operand.hpp"

namespace stretto::cuda {

// By index into the programs that are here, and operation.
using OperandsOf = std::function<std::span<const exec::Operand>(std::uint32_t rank, std::uint32_t op)>;

// How ranks get each other's bytes. Used from the executor's thread.
class Communication {
 public:
  virtual ~Communication() = default;
  // Starts a `launch` of a collective or of messages on the stream of its lane.
  virtual void launch(const LaunchAction& action, const Stream& stream) = 0;
  // Throws Error(runtime) when what was launched cannot come to its end. To be called while waiting for it.
  virtual void check() {}
  // Aborts everything that was launched and still runs; nothing may be launched after this. Graphs with launches
  // in them must have been destroyed: NCCL waits for that.
  virtual void abort() {}
  // Facts that users should know, a line each.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Between ranks that share the device: by copying in its memory, with as many thread blocks as the communicator has
// channels, or messages by the copy engine where the communicator is on that; no faster than the link of the options.
// Keeps references.
std::unique_ptr<Communication> share_gpu(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                         const LaunchPlan& launches, OperandsOf operands, const CudaOptions& options);

// Between processes, a rank each (options.processes), by NCCL: a communicator for every group, with as many CTAs as it
// has channels. Every process must call this at the same time. On the current device, which no other process may use
// but those of `stretto train --ranks`: they then pass for machines of their own (NCCL_HOSTID) and communicate by
// sockets, which proves the order of calls and says nothing of speed.
//
// `registered`: the rank's arena, when collectives are to reach it without copies (cluster.nccl_ub): from ncclMemAlloc,
// registered with the communicators whose members have it laid out alike, a note naming the others. What the schedule
// has on copy engines NCCL moves by those where it can (2.28, one machine, registered), and a note says where not.
//
// Calls do not block for longer than options.timeout_s. Throws Error(runtime): an NCCL that is too old,
// two processes on one device, a rank that does not come. Keeps references. On `stream`, which has scratch, ranks that
// send to each other are connected; that may still run when this returns.
std::unique_ptr<Communication> connect_nccl(const Schedule& schedule, const BoundProgram& program, OperandsOf operands,
                                            const CudaOptions& options, const Stream& stream,
                                            std::span<std::byte> registered);

}  // namespace stretto::cuda
