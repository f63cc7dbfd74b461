#pragma once
#include "model/framework.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/accelerator/accelerator.hpp"
#include "sim/accelerator/nccl_model.hpp"

namespace stretto::sim {

// Returns the microseconds of a compute operation on a GPU to itself:
//
//   GEMM        table · sustained, slower where rows of an operand are not aligned to 16 bytes, plus the bytes that a
//               plain product does not move (f32 results, sums, epilogues)
//               of codes: the table of its kind · sustained, on Hopper slower with split accumulation
//   casts       bytes / (share of casts of that size · memory rate) + kernel_us; nothing where the framework's norm
//               kernels write codes, or take the largest magnitude, of what they compute
//   attention   flops / rate, at least the time of the thread block that sees all keys
//   products of unfused attention
//               flops / (bmm_share · peak), at least their bytes; and kernel_us
//   others      bytes / (share · memory rate) + kernel_us, where the bytes are those of the operands; a causal softmax
//               does not read masked scores
//
// docs/platform.md has the evidence.
struct KernelChoices {
  bool fp8_attention = false;  // attention multiplies codes of 8 bits
  bool fuses_experts = false;  // in products of experts in MXFP8 are the activation and casts of what it writes
};
double kernel_us(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                 const Operation& operation, KernelChoices choices = {});

// Returns whether the operation is a part of the kernels of experts' products with KernelChoices::fuses_experts.
bool is_part_of_experts(const Schedule& schedule, const Operation& operation);

// Returns the kind of a plain product (Gemm), by its factors.
ProductType product_type_of(const Schedule& schedule, const Operation& product);

// Returns the kind of the products in the schedule's lowest precision, which its peak is that of (docs/mfu.md).
ProductType lowest_product_type(const Schedule& schedule);

// Returns how many operations of PyTorch make up an operation: one, or more for a softmax that the framework
// leaves to it, for a router that is not fused, and for the heads of latent attention.
int kernels_of(const Framework& framework, const Operation& operation);

// Returns the time of a group's collective, alone on its links; `bytes` is the size of the whole buffer. A group across
// nodes has as many network cards as members on a node, as long as NVLink and the links between pods can carry their
// traffic.
GroupTime collective_time(const Accelerator& accelerator, const Framework& framework, CollectiveKind kind, double bytes,
                          const GroupSpan& span);
// Returns the microseconds of such a collective outside of a step, as nccl-tests measures it.
double measured_collective_us(const Accelerator& accelerator, CollectiveKind kind, double bytes, const GroupSpan& span);
// Returns the time of a dispatch or a combine of rows by the library of `transport`, when all experts have equally
// many. By NCCL every row goes to the rank of its expert. DeepEP and HybridEP send a token once to each rank, and over
// the network once to each node, that has any of its experts: of `copies` experts drawn at random, n · (1 − (1 −
// 1/n)^copies) of n ranks. Probabilities go with the rows: `cols` = 1 takes no time of its own. A router that limits a
// token to some groups of experts (`most_groups` of `groups`, which lie on the nodes in order; 0: no limit) limits the
// nodes that it is sent to.
struct GroupLimit {
  std::int64_t groups = 0, most_groups = 0;
};
GroupTime token_exchange_time(const Accelerator& accelerator, const Framework& framework, const Collective& work,
                              double element_bytes, TokenTransport transport, const GroupSpan& span,
                              const GroupLimit& limit = {});

// Returns the time of the copies around a collective of tensor parallelism, where the framework has them (element_bytes
// tensor_parallel_copy): of each element after a gather, or before a scatter.
double tensor_parallel_copy_us(const Accelerator& accelerator, const Framework& framework, const Collective& work);
// Returns the time of a message of a communicator with this span; it crosses nodes when any of the communicator's
// messages does.
GroupTime message_time(const Accelerator& accelerator, double bytes, const GroupSpan& span);

}  // namespace stretto::sim
