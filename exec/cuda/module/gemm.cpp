#include "exec/cuda/module/gemm.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <vector>

#include "exec/cuda/kernels/launch_work.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/handles.hpp"

namespace stretto::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw runtime_failure(std::string("cuBLAS: ") + what + ": " + cublasLtGetStatusString(status));
}
using cuda::check;

constexpr int kCandidates = 8, kRepeats = 5;  // algorithms tried, and runs of each
constexpr std::size_t kAlignment = 16;        // that cuBLAS's fast kernels ask for

cudaDataType_t type_of(Dtype dtype) {
  assert(dtype == Dtype::f32 || dtype == Dtype::bf16);
  return dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Of a row-major operand, as cuBLAS sees it: transposed.
cublasLtMatrixLayout_t layout_of(const exec::Operand& operand) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(operand.dtype), static_cast<std::uint64_t>(operand.cols),
                                   static_cast<std::uint64_t>(operand.rows), std::max(operand.ld, operand.cols)),
        "describing a matrix");
  return layout;
}

std::uint32_t alignment_of(const exec::Operand& operand) {
  const auto address = reinterpret_cast<std::uintptr_t>(operand.data);
  return static_cast<std::uint32_t>(address == 0 ? kAlignment
                                                 : std::min<std::uintptr_t>(address & (~address + 1), 256));
}

Gemm without_epilogue(Gemm work) {
  work.epilogue = GemmEpilogue::none;
  return work;
}
// The product goes to X in the forward pass, to C in the backward pass, and a kernel makes C of it.
std::vector<exec::Operand> operands_without_epilogue(const Gemm& work, std::span<const exec::Operand> operands) {
  std::vector<exec::Operand> left(operands.begin(), operands.end() - 2);
  left.push_back(work.epilogue == GemmEpilogue::gelu ? operands[operands.size() - 2] : operands.back());
  return left;
}

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { check(cublasLtMatmulPreferenceCreate(&handle), "asking for algorithms"); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof value), "asking for algorithms");
  }
};

}  // namespace

// Owns cuBLAS's descriptions.
struct GemmRunner::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  float beta = 0;
  bool has_epilogue = false;  // false for work that has one: cuBLAS does not, and a kernel follows

  Plan(const Gemm& work, std::span<const exec::Operand> operands, int sms, bool with_epilogue)
      : a(layout_of(operands[1])),
        b(layout_of(operands[0])),
        c(layout_of(operands.back())),
        beta(operands.back().mode == AccessMode::accumulate ? 1.0f : 0.0f),
        has_epilogue(with_epilogue && work.epilogue != GemmEpilogue::none) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a GEMM");
    set(CUBLASLT_MATMUL_DESC_TRANSA, work.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, work.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (sms > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sms);
    if (work.bias || has_epilogue) set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(work));
    if (work.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(operands[2].dtype));
    if (has_epilogue) {
      const exec::Operand& x = operands[operands.size() - 2];
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::max(x.ld, x.cols));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(x.dtype));
    }
    point_to(work, operands);
  }
  ~Plan() {
    cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {a, b, c}) cublasLtMatrixLayoutDestroy(layout);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "describing a GEMM");
  }
  // A bias along the columns of C is one along the rows of its transpose. cuBLAS's GELU is the one by tanh, as ours.
  cublasLtEpilogue_t epilogue_of(const Gemm& work) const {
    if (!has_epilogue) return CUBLASLT_EPILOGUE_BIAS;
    if (work.epilogue == GemmEpilogue::gelu_backward) return CUBLASLT_EPILOGUE_DGELU;
    return work.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  // What descriptions hold of memory: not what a plan depends on.
  void point_to(const Gemm& work, std::span<const exec::Operand> operands) {
    if (work.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(operands[2].data));
    if (has_epilogue)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(operands[operands.size() - 2].data));
  }

  cublasStatus_t start(cublasLtHandle_t handle, std::span<const exec::Operand> operands,
                       const cublasLtMatmulAlgo_t& how, const Stream& stream) const {
    const float alpha = 1;
    void* out = operands.back().data;
    return cublasLtMatmul(handle, operation, &alpha, operands[1].data, a, operands[0].data, b, &beta, out, c, out, c,
                          &how, stream.scratch, stream.scratch_bytes, static_cast<cudaStream_t>(stream.stream));
  }
};

GemmRunner::GemmRunner(int sms) : sms_(sms) { check(cublasLtCreate(&handle_), "starting"); }
GemmRunner::~GemmRunner() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

GemmRunner::Key GemmRunner::key_of(const Gemm& work, std::span<const exec::Operand> operands) {
  std::uint32_t alignment = 256;
  for (const exec::Operand& operand : operands) alignment = std::min(alignment, alignment_of(operand));
  const exec::Operand& c = operands.back();
  return {work.m,
          work.n,
          work.k,
          work.trans_a,
          work.trans_b,
          work.bias,
          operands[0].ld,
          operands[1].ld,
          c.ld,
          static_cast<std::int64_t>(operands[0].dtype) * 8 + static_cast<std::int64_t>(c.dtype),
          c.mode == AccessMode::accumulate,
          alignment,
          static_cast<std::int64_t>(work.epilogue),
          work.epilogue == GemmEpilogue::none ? 0 : operands[operands.size() - 2].ld};
}

void GemmRunner::tune(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  auto& plan = plans_[key_of(work, operands)];
  if (plan) return;
  plan = fastest(work, operands, stream, true);
  if (!plan && work.epilogue != GemmEpilogue::none) {
    const Gemm alone = without_epilogue(work);
    plan = fastest(alone, operands_without_epilogue(work, operands), stream, false);
  }
  if (!plan) throw runtime_failure("cuBLAS has no algorithm that runs " + describe(Work(work)));
}

std::unique_ptr<GemmRunner::Plan> GemmRunner::fastest(const Gemm& work, std::span<const exec::Operand> operands,
                                                      const Stream& stream, bool with_epilogue) {
  auto plan = std::make_unique<Plan>(work, operands, sms_, with_epilogue);
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, stream.scratch_bytes);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(operands[1]));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(operands[0]));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(operands.back()));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(operands.back()));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  const cublasStatus_t asked =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan->operation, plan->a, plan->b, plan->c, plan->c, preference.handle,
                                     kCandidates, found.data(), &count);
  if (asked == CUBLAS_STATUS_NOT_SUPPORTED) return nullptr;
  check(asked, "asking for algorithms");

  const CudaEvent begin(true), end(true);
  const auto on = static_cast<cudaStream_t>(stream.stream);
  float best_ms = std::numeric_limits<float>::infinity();
  for (int i = 0; i < count; ++i) {
    float fastest_ms = std::numeric_limits<float>::infinity();
    for (int repeat = 0; repeat <= kRepeats; ++repeat) {  // the first warms up
      check(cudaEventRecord(begin.event, on), "timing");
      if (plan->start(handle_, operands, found[static_cast<std::size_t>(i)].algo, stream) != CUBLAS_STATUS_SUCCESS) {
        fastest_ms = std::numeric_limits<float>::infinity();
        break;
      }
      check(cudaEventRecord(end.event, on), "timing");
      check(cudaEventSynchronize(end.event), "timing a GEMM");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin.event, end.event), "timing a GEMM");
      if (repeat > 0) fastest_ms = std::min(fastest_ms, ms);
    }
    if (fastest_ms < best_ms) {
      best_ms = fastest_ms;
      plan->algorithm = found[static_cast<std::size_t>(i)].algo;
    }
  }
  if (best_ms == std::numeric_limits<float>::infinity()) return nullptr;
  return plan;
}

void GemmRunner::run(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const auto found = plans_.find(key_of(work, operands));
  assert(found != plans_.end() && "tuned before");
  Plan& plan = *found->second;
  if (work.epilogue == GemmEpilogue::none || plan.has_epilogue) {
    plan.point_to(work, operands);
    return check(plan.start(handle_, operands, plan.algorithm, stream), "starting a GEMM");
  }
  const std::vector<exec::Operand> of_gemm = operands_without_epilogue(work, operands);
  plan.point_to(without_epilogue(work), of_gemm);
  check(plan.start(handle_, of_gemm, plan.algorithm, stream), "starting a GEMM");
  const exec::Operand &x = operands[operands.size() - 2], &c = operands.back();
  if (work.epilogue == GemmEpilogue::gelu)
    launch_work(Elementwise{ElementwiseFn::gelu, work.m, work.n}, {}, std::array{x, c}, stream);
  else
    launch_work(Elementwise{ElementwiseFn::gelu_backward, work.m, work.n}, {}, std::array{c, x, c}, stream);
}

}  // namespace stretto::cuda
