#pragma once
#include "model/framework.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/accelerator/accelerator.hpp"
#include "sim/accelerator/nccl_model.hpp"

namespace stretto::sim {

// Microseconds of a compute operation on a GPU to itself:
//
//   GEMM        table · sustained, slower where rows of an operand are not aligned to 16 bytes, plus the bytes that a
//               plain product does not move (f32 results, sums, epilogues)
//   attention   flops / rate, at least the time of the thread block that sees all keys
//   the rest    bytes / (share · memory rate) + kernel_us, the bytes those of the operands
//
// docs/platform.md has the evidence.
double kernel_us(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                 const Operation& operation);

// Kernels that the host issues for an operation.
int kernels_of(const Framework& framework, const Operation& operation);

// Microseconds of a collective of a group that spans so many nodes, or of a message between nodes or within one, alone
// on its links. `bytes` is the whole buffer of a collective.
double collective_us(const Accelerator& accelerator, const Framework& framework, CollectiveKind kind, double bytes,
                     const GroupSpan& span);
double message_us(const Accelerator& accelerator, double bytes, bool crosses_nodes);

// How the instances of a communicator lie on nodes of `domain` ranks; of different ones, the one on the most nodes.
GroupSpan span_of(const Schedule& schedule, const Communicator& communicator, std::int64_t domain);

}  // namespace stretto::sim
