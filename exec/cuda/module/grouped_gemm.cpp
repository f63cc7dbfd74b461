#include "exec/cuda/module/grouped_gemm.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <cassert>
#include <string>

#include "base/error.hpp"

namespace stretto::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw runtime_failure(std::string("cuBLAS: ") + what + ": " + cublasGetStatusString(status));
}

cudaDataType_t type_of(const exec::Operand& operand) {
  assert(operand.dtype == Dtype::f32 || operand.dtype == Dtype::bf16);
  return operand.dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// A matrix of the first group, which cuBLAS sees transposed; and how far the next group's is.
struct OfGroup {
  void* data;
  cudaDataType_t type;
  int ld;
  long long stride;
  OfGroup(const exec::Operand& operand, std::int64_t rows)
      : data(operand.data),
        type(type_of(operand)),
        ld(static_cast<int>(std::max(operand.ld, operand.cols))),
        stride(static_cast<long long>(rows) * ld) {}
};

}  // namespace

GroupedGemmRunner::GroupedGemmRunner(int sms) {
  check(cublasCreate(&handle_), "starting");
  if (sms > 0) check(cublasSetSmCountTarget(handle_, sms), "giving it SMs");
}
GroupedGemmRunner::~GroupedGemmRunner() { cublasDestroy(handle_); }

// Row-major y = x · Wᵀ is column-major yᵀ = W · xᵀ, and so on.
void GroupedGemmRunner::run(const GroupedGemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  assert(runs_at_once(work));
  check(cublasSetStream(handle_, static_cast<cudaStream_t>(stream.stream)), "giving it a stream");
  // It has a workspace of its own otherwise, which concurrent lanes would share.
  check(cublasSetWorkspace(handle_, stream.scratch, stream.scratch_bytes), "giving it a workspace");
  const bool is_wgrad = work.pass == Pass::wgrad;
  const std::int64_t rows = work.rows / work.groups;
  const OfGroup a(operands[0], rows), b(operands[1], is_wgrad ? rows : work.n),
      c(operands.back(), is_wgrad ? work.n : rows);
  const auto m = static_cast<int>(work.pass == Pass::forward ? work.n : work.k),
             n = static_cast<int>(is_wgrad ? work.n : rows),
             k = static_cast<int>(is_wgrad                     ? rows
                                  : work.pass == Pass::forward ? work.k
                                                               : work.n);
  const float alpha = 1, beta = operands.back().mode == AccessMode::accumulate ? 1.0f : 0.0f;
  check(cublasGemmStridedBatchedEx(handle_, work.pass == Pass::forward ? CUBLAS_OP_T : CUBLAS_OP_N,
                                   is_wgrad ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &alpha, b.data, b.type, b.ld,
                                   b.stride, a.data, a.type, a.ld, a.stride, &beta, c.data, c.type, c.ld, c.stride,
                                   static_cast<int>(work.groups), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "starting the products of experts");
}

}  // namespace stretto::cuda
