#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace stretto {

struct Operation;
struct Schedule;

// Kinds of work of the process that issues a rank's operations, by what it takes the process. A profile has a time for
// each (`[host.us]`, docs/profiles.md), which a trace of a step gives as well. Python runs all kinds but `cpp`.
enum class HostKind : std::uint8_t {
  linear,         // a product of a linear layer, as TransformerEngine's and PyTorch's modules issue it
  attention,      // fused attention
  norm,           // LayerNorm, RMSNorm
  torch_op,       // any other operation of PyTorch, a kernel or a fused one
  collective,     // a collective of NCCL through torch.distributed
  exchange,       // rows of experts sent or brought back by NCCL's all-to-all
  flex_exchange,  // the same by DeepEP, HybridEP or NCCL's EP
  message,        // a send or a receive of a pipeline or a ring
  grouped,        // products of a rank's experts, without the loop over experts, which is `cpp`
  router,         // scores, top-k and probabilities
  layer,          // modules and autograd around the operations of a layer
  node,           // a part of a layer that a schedule issues by itself (overlap_moe_expert_parallel_comm)
  recompute,      // a function of autograd that the backward pass runs again
  graph,          // the launch of a CUDA graph, with copies of its inputs
  sync,           // a device-to-host synchronisation, beyond the wait for the device
  micro_batch,    // before the first operation of a micro-batch: data, loss, bookkeeping
  step,           // before the first operation of a step: data, optimizer, logs
  parameter,      // each parameter of a rank in a step: hooks of its gradient, the optimizer's loops over parameters
  codes,          // a kernel that makes codes, or an expert's product of codes, for which Python prepares each operand
  cpp,            // one launch in a loop of C++: a product of one expert
};
constexpr int kHostKinds = static_cast<int>(HostKind::cpp) + 1;

// Returns the name of a kind, which is also its key: "linear", …; "?" beyond the last.
const char* name_of(HostKind kind);
std::optional<HostKind> host_kind_named(std::string_view name);
// Returns whether operations of the kind belong to a forward or a backward pass, whose times may differ.
bool has_passes(HostKind kind);

// Returns the kind of an operation: the one place that decides it.
HostKind host_kind_of(const Schedule& schedule, const Operation& operation);
// Returns whether the process issues the operation in a backward pass.
bool is_of_backward(const Operation& operation);

}  // namespace stretto
