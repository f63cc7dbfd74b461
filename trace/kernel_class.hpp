#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stretto::trace {

// The kind of work of a kernel, as far as its name says it.
enum class KernelClass : std::uint8_t {
  gemm,
  gemm_reduce,  // second kernel of a GEMM that is split along k
  attention_forward,
  attention_backward,
  attention_part,  // kernels before and after fused attention's backward pass
  softmax,
  norm_forward,
  norm_backward,
  activation,  // GELU, SwiGLU and their gradients
  rope,
  embedding,
  cross_entropy,
  dropout,
  optimizer,
  gradient_norm,
  router,
  permute,  // rows of experts, concatenation, sort, gather and scatter
  cast,     // between types, scales included
  copy,     // between or within buffers, memcpy included
  fill,
  reduce,
  elementwise,
  all_gather,  // from here on: communication
  reduce_scatter,
  all_reduce,
  all_to_all,
  send_recv,
  dispatch,  // rows of experts go to their ranks
  combine,
  dispatch_part,  // kernels that prepare dispatch and combine, and wait for peers
  broadcast,
  other,  // compute whose name says nothing
};
const char* name_of(KernelClass cls);  // "gemm", …

bool is_communication(KernelClass cls);

// Returns the class by the kernel's name, demangled or not. kernel_class.cpp has the one table of names.
KernelClass class_of_kernel(std::string_view name);
// How often class_of_kernel() looks at a character of a name, for budgets: a search for each part of each row.
constexpr std::size_t kLooksOfPatterns = 64;
// Returns the class by the name of a collective in PyTorch's arguments ("allreduce", "_allgather_base", …); `other` for
// unknown names. NCCL's kernels may be named after another operation than they run (NVIDIA/nccl, issue 739), so this
// name precedes the kernel's.
KernelClass class_of_collective(std::string_view name);

// One row of the table: parts that the lower-case name has in this order, separated by '*'.
struct KernelPattern {
  const char* parts;
  KernelClass cls;
  const char* source;  // where kernels of this name were seen, or their code
};
struct KernelPatterns {
  const KernelPattern* begin_;
  const KernelPattern* end_;
  const KernelPattern* begin() const { return begin_; }
  const KernelPattern* end() const { return end_; }
};
KernelPatterns kernel_patterns();  // the first row that fits decides

}  // namespace stretto::trace
