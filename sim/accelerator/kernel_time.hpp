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
//   products of unfused attention
//               flops / (bmm_share · peak), at least their bytes; and kernel_us
//   the rest    bytes / (share · memory rate) + kernel_us, the bytes those of the operands; a causal softmax does
//               not read what is masked
//
// docs/platform.md has the evidence.
double kernel_us(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                 const Operation& operation);

// Kernels that the host issues for an operation: one, but for a softmax that the framework leaves to PyTorch.
int kernels_of(const Framework& framework, const Operation& operation);

// A collective of a group, alone on its links; `bytes` is the whole buffer. A group across nodes has as many network
// cards as members on a node, as long as NVLink and the links between pods carry what they do.
GroupTime collective_time(const Accelerator& accelerator, const Framework& framework, CollectiveKind kind, double bytes,
                          const GroupSpan& span);
// Copies around a collective of tensor parallelism, where the framework has them (element_bytes tensor_parallel_copy):
// of each element of what is gathered, or before it is scattered.
double tensor_parallel_copy_us(const Accelerator& accelerator, const Framework& framework, const Collective& work);
// A message of a communicator of that span; across nodes when any of its messages is.
GroupTime message_time(const Accelerator& accelerator, double bytes, const GroupSpan& span);

}  // namespace stretto::sim
