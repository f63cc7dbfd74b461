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

// Returns the operands by index into this process's programs, and operation.
using OperandsOf = std::function<std::span<const exec::Operand>(std::uint32_t rank, std::uint32_t op)>;
// Returns the host's copy of an operand with numbers of rows (counts_of()).
using CountsOf = std::function<const std::int32_t*(const exec::Operand& counts)>;

// How ranks get each other's bytes. Used from the executor's thread.
class Communication {
 public:
  virtual ~Communication() = default;
  // Starts a `launch` of a collective or of messages on the stream of its lane.
  virtual void launch(const LaunchAction& action, const Stream& stream) = 0;
  // Throws Error(runtime) when launched work cannot end. Call it while waiting for that work.
  virtual void check() {}
  // Aborts all launched work that still runs; nothing may be launched after this. Graphs with launches in them must
  // have been destroyed: NCCL waits for that.
  virtual void abort() {}
  // Returns facts for the user, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Returns communication between ranks that share the device: by copying in its memory, with as many thread blocks as
// the communicator has channels, or messages by the copy engine where the communicator is on that; no faster than the
// link of the options. Keeps references.
std::unique_ptr<Communication> share_gpu(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                         const LaunchPlan& launches, OperandsOf operands, CountsOf counts,
                                         const CudaOptions& options);

// Returns communication between processes with a rank each (options.processes), by NCCL: a communicator for every
// group, with as many CTAs as it has channels. Every process must call this at the same time. Uses the current device,
// which no other process may use except those of `stretto train --ranks`: these then pass for machines of their own
// (NCCL_HOSTID) and communicate by sockets, which tests the order of calls but says nothing about speed.
//
// `registered`: the rank's arena, when collectives must reach it without copies (cluster.nccl_ub): from ncclMemAlloc,
// registered with the communicators whose members have equal layouts; a note names the others. NCCL moves the bytes of
// copy-engine communicators by copy engines where it can (2.28, one machine, registered), and a note says where not.
//
// Rows of experts whose numbers data says go as messages of a group, each as long as the host's copy of the numbers
// says. All members have equal numbers: where these leave a buffer, all throw the same Error(runtime).
//
// Calls block for at most options.timeout_s. Throws Error(runtime) for an NCCL that is too old, two processes on one
// device, or a rank that does not arrive. Keeps references. Ranks that send to each other are connected on `stream`,
// which has scratch; that may still run when this returns.
std::unique_ptr<Communication> connect_nccl(const Schedule& schedule, const BoundProgram& program, OperandsOf operands,
                                            CountsOf counts, const CudaOptions& options, const Stream& stream,
                                            std::span<std::byte> registered);

}  // namespace stretto::cuda
