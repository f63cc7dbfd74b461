#include "exec/cuda/module/gemm.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "exec/cuda/code_scratch.hpp"
#include "exec/cuda/kernels/launch_work.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/code_products.hpp"
#include "exec/cuda/module/codes_apart.hpp"
#include "exec/cuda/module/fastest.hpp"
#include "exec/cuda/module/handles.hpp"
#include "exec/cuda/module/this_device.hpp"

namespace stretto::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw runtime_failure(std::string("cuBLAS: ") + what + ": " + cublasLtGetStatusString(status));
}
using cuda::check;

constexpr int kCandidates = 16, kRounds = 2, kRepeats = 5;  // algorithms tried, rounds, and runs in a round
// An algorithm whose single run takes kHopeless times as long as the best is not run again. Below kLeast_ms, events are
// not precise enough to compare them.
constexpr float kHopeless = 1.5f, kLeast_ms = 0.05f;
constexpr std::size_t kMostUntuned = 4096;  // algorithms of run_untuned() that are kept
constexpr std::uint32_t kAlignment = 16;    // alignment that cuBLAS's fast kernels require

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::e4m3:
      return CUDA_R_8F_E4M3;
    case Dtype::e5m2:
      return CUDA_R_8F_E5M2;
    case Dtype::f32:
      return CUDA_R_32F;
    case Dtype::e2m1x2:
#if CUBLAS_VERSION >= 120800
      return CUDA_R_4F_E2M1;
#endif
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::f16:
    case Dtype::i16:
      break;
  }
  assert(false && "refused before (cuda.cpp)");
  return CUDA_R_32F;
}

constexpr std::size_t kBlockScales = 120900;  // the version of cuBLAS that has all scales of blocks
// Throws Error(runtime) where this cuBLAS does not have them.
void require_block_scales() {
  const std::size_t here = std::min<std::size_t>(CUBLAS_VERSION, cublasLtGetVersion());
  if (here < kBlockScales)
    throw runtime_failure(fmt::format("cuBLAS {}: products of codes with scales of blocks need cuBLAS 12.9", here));
}
#if CUBLAS_VERSION >= 120900
cublasLtMatmulMatrixScale_t mode_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::none:
    case Scaling::tensor:
      break;
    case Scaling::block_128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::block_128x128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case Scaling::mx:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case Scaling::nv:
    case Scaling::nv_16x16:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}
#endif

// Returns the layout of a row-major operand for cuBLAS, which sees it transposed.
cublasLtMatrixLayout_t layout_of(const exec::Operand& operand) {
  cublasLtMatrixLayout_t layout = nullptr;
  const std::int64_t of_byte = operand.dtype == Dtype::e2m1x2 ? 2 : 1;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(operand.dtype), static_cast<std::uint64_t>(of_byte * operand.cols),
                                   static_cast<std::uint64_t>(operand.rows),
                                   of_byte * std::max(operand.ld, operand.cols)),
        "describing a matrix");
  return layout;
}

std::uint32_t alignment_of(const exec::Operand& operand) {
  const auto address = reinterpret_cast<std::uintptr_t>(operand.data);
  return address == 0 ? kAlignment
                      : static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & (~address + 1), kAlignment));
}
// Returns the operand that gets gradients of a bias, as sums of the epilogue.
std::optional<std::size_t> bias_sums_of(const Gemm& work) {
  if (work.epilogue == GemmEpilogue::bias_gradient) return work.x_index();
  return work.sums_columns() ? std::optional(work.s_index()) : std::nullopt;
}
// Returns the alignment of the bias and of GELU's saved input, which cuBLAS derives from their addresses. Sums go
// elsewhere.
std::uint32_t alignment_of_epilogue(const Gemm& work, std::span<const exec::Operand> operands) {
  std::uint32_t alignment = kAlignment;
  for (std::size_t i = 2; i < work.inverse_index(); ++i)
    if (i != bias_sums_of(work)) alignment = std::min(alignment, alignment_of(operands[i]));
  return alignment;
}
// Returns the work as a GEMM with another epilogue and the works that run after it; parts_of() where the epilogue is
// none. Only gelu_backward_bias_gradient has an epilogue in between: gelu_backward.
std::vector<Part> parts_with(GemmEpilogue epilogue, const Gemm& work) {
  std::vector<Part> parts = parts_of(work);
  if (epilogue == GemmEpilogue::none) return parts;
  assert(epilogue == GemmEpilogue::gelu_backward && work.sums_columns());
  Gemm product = work;
  product.epilogue = epilogue;
  std::vector<Part::Operand> operands = parts.front().operands;
  operands.insert(operands.end() - 1, {work.x_index()});
  return {{product, std::move(operands)}, std::move(parts.back())};
}

// Returns the operand that beta multiplies.
const exec::Operand& added_of(const Gemm& work, std::span<const exec::Operand> operands) {
  return work.epilogue == GemmEpilogue::residual ? operands[work.x_index()] : operands.back();
}

// cuBLAS writes the gradient of a bias and cannot add to old contents: its sums go to the end of the scratch, and a
// kernel adds them.
struct BiasSums {
  exec::Operand sums;  // [1, elements of the bias]
  Stream stream;       // with the scratch before them
  BiasSums(const Gemm& work, Dtype dtype, const Stream& of) : stream(of) {
    const std::int64_t count = work.sums_columns() ? work.n : work.m;
    const std::int64_t bytes = (count * bytes_of(dtype) + 255) / 256 * 256;
    assert(static_cast<std::size_t>(bytes) <= of.scratch_bytes);
    stream.scratch_bytes -= static_cast<std::size_t>(bytes);
    sums.data = static_cast<std::byte*>(of.scratch) + stream.scratch_bytes;
    sums.dtype = dtype;
    sums.rows = 1;
    sums.cols = sums.ld = count;
    sums.mode = AccessMode::read;
  }
};

// Returns the time of one run: the minimum over `rounds` of the mean over `repeats`.
template <class Start>
float time_ms(Start start, const Stream& stream, int rounds = kRounds, int repeats = kRepeats) {
  const CudaEvent begin(true), end(true);
  const auto on = static_cast<cudaStream_t>(stream.stream);
  float fastest_ms = std::numeric_limits<float>::infinity();
  start();  // warms up
  for (int round = 0; round < rounds; ++round) {
    // The runs are back to back, so that the host's time to start them does not count.
    check(cudaEventRecord(begin.event, on), "timing");
    for (int repeat = 0; repeat < repeats; ++repeat) start();
    check(cudaEventRecord(end.event, on), "timing");
    check(cudaEventSynchronize(end.event), "timing a GEMM");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "timing a GEMM");
    fastest_ms = std::min(fastest_ms, ms / static_cast<float>(repeats));
  }
  return fastest_ms;
}

// Returns everything that a plan depends on besides the GEMM.
std::string made_for(int sms) {
  return fmt::format("cuBLASLt {}, {}, GEMMs on {} SMs", cublasLtGetVersion(), this_device(),
                     sms > 0 ? std::to_string(sms) : "all");
}

Error no_algorithm(const Gemm& work) {
  return runtime_failure("cuBLAS has no algorithm that runs " + describe(Work(work)) +
                         (work.has_codes() && (work.trans_a || !work.trans_b)
                              ? "; [training] fp8_transposes = true makes the products that GPUs before Blackwell have"
                              : ""));
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

// Owns cuBLAS's descriptors.
struct GemmRunner::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, added = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  float beta = 0;
  // The epilogue that cuBLAS runs: the work's, or none, with kernels after it; or only GELU's gradient.
  GemmEpilogue epilogue = GemmEpilogue::none;
  Dtype sums = Dtype::f32;  // type of BiasSums
  float ms = 0;             // time of a run of the work, with the kernels after it

  // Makes the descriptors of a GEMM whose epilogue cuBLAS runs.
  Plan(const Gemm& work, std::span<const exec::Operand> operands, int sms, Dtype of_sums)
      : a(layout_of(operands[1])),
        b(layout_of(operands[0])),
        added(layout_of(added_of(work, operands))),
        c(layout_of(operands.back())),
        beta(work.epilogue == GemmEpilogue::residual || operands.back().mode == AccessMode::accumulate ? 1.0f : 0.0f),
        epilogue(work.epilogue),
        sums(of_sums) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a GEMM");
    set(CUBLASLT_MATMUL_DESC_TRANSA, work.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, work.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (sms > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sms);
    if (work.bias || epilogue != GemmEpilogue::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(work));
    // cuBLAS's own sums have fewer bits on Hopper, where they are faster. Blocks of 128 are summed in f32 in any case,
    // and TransformerEngine asks for fast sums of fp8 only.
    const bool is_fast = work.has_codes() && !work.split_accumulation && operands[0].dtype != Dtype::e2m1x2 &&
                         rule_of(work.scaling_b).block != 128;
    if (work.has_codes()) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(is_fast ? 1 : 0));
    if (has_block_scales(work)) {
#if CUBLAS_VERSION >= 120900
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(work.scaling_b));  // cuBLAS's A is B
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(work.scaling_a));
#endif
      if (work.has_factors()) set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    }
    if (work.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(operands[2].dtype));
    if (bias_sums_of(work)) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(sums));
    if (has_aux(work)) {
      const exec::Operand& x = operands[work.x_index()];
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::max(x.ld, x.cols));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(x.dtype));
    }
  }
  ~Plan() {
    cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {a, b, added, c}) cublasLtMatrixLayoutDestroy(layout);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // The plan as the file keeps it. cuBLAS documents that an algorithm can be written and read again by one version of
  // it (cublasLtMatmulAlgo_t).
  static constexpr std::size_t kNumbers = 2 + std::size(cublasLtMatmulAlgo_t{}.data);
  PlanFile::Numbers numbers() const {
    PlanFile::Numbers all = {static_cast<std::int64_t>(epilogue), sums == Dtype::bf16};
    for (const std::uint64_t word : algorithm.data) all.push_back(static_cast<std::int64_t>(word));
    return all;
  }
  void take(const PlanFile::Numbers& all) {
    for (std::size_t i = 0; i < std::size(algorithm.data); ++i)
      algorithm.data[i] = static_cast<std::uint64_t>(all[2 + i]);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "describing a GEMM");
  }
  // A bias along the columns of C is one along the rows of its transpose. cuBLAS's GELU uses tanh, as ours does.
  cublasLtEpilogue_t epilogue_of(const Gemm& work) const {
    switch (work.epilogue) {
      case GemmEpilogue::none:
      case GemmEpilogue::residual:
        return work.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      case GemmEpilogue::gelu:
        return work.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case GemmEpilogue::gelu_backward:
        return CUBLASLT_EPILOGUE_DGELU;
      // A is cuBLAS's B, whose sums over k have one value for every column of cuBLAS's D
      case GemmEpilogue::bias_gradient:
        return CUBLASLT_EPILOGUE_BGRADB;
      // sums over cuBLAS's columns have one value for every row of its D
      case GemmEpilogue::gelu_backward_bias_gradient:
        return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
  }
  bool has_aux(const Gemm& work) const {
    return work.epilogue == GemmEpilogue::gelu || work.epilogue == GemmEpilogue::gelu_backward || work.sums_columns();
  }
  std::size_t workspace_bytes(const Gemm& work, const Stream& stream) const {
    return bias_sums_of(work) ? BiasSums(work, sums, stream).stream.scratch_bytes : stream.scratch_bytes;
  }
  // Sets the addresses in the descriptors; a plan does not depend on them.
  void point_to(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
    if (work.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(operands[2].data));
    if (has_block_scales(work)) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(operands[scales_index(work) + 1].data));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(operands[scales_index(work)].data));
    } else if (work.has_factors()) {  // cuBLAS's A is B; the default mode is one f32 for the whole matrix
      const std::size_t inverse_a = work.inverse_index();
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(operands[inverse_a + 1].data));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(operands[inverse_a].data));
    }
    if (bias_sums_of(work))
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(BiasSums(work, sums, stream).sums.data));
    if (has_aux(work))
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(operands[work.x_index()].data));
  }

  // Starts work whose operands the descriptors point to.
  cublasStatus_t start(const Gemm& work, cublasLtHandle_t handle, std::span<const exec::Operand> operands,
                       const cublasLtMatmulAlgo_t& how, const Stream& stream) const {
    const float one = 1;
    const float *alpha = &one, *of_added = &beta;
    if (has_block_scales(work) && work.has_factors()) {  // the tensors' factors, on the device
      alpha = static_cast<const float*>(operands[scales_index(work) + 2].data);
      of_added = alpha + 1;
    }
    return cublasLtMatmul(handle, operation, alpha, operands[1].data, a, operands[0].data, b, of_added,
                          added_of(work, operands).data, added, operands.back().data, c, &how, stream.scratch,
                          workspace_bytes(work, stream), static_cast<cudaStream_t>(stream.stream));
  }
};

namespace {

// Returns the algorithms that cuBLAS proposes for a plan; none where it does not have the epilogue or the types.
std::vector<cublasLtMatmulHeuristicResult_t> candidates_of(const GemmRunner::Plan& plan, cublasLtHandle_t handle,
                                                           const Gemm& work, std::span<const exec::Operand> operands,
                                                           const Stream& stream, int most) {
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, plan.workspace_bytes(work, stream));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(operands[1]));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(operands[0]));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(added_of(work, operands)));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(operands.back()));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.added,
                                                              plan.c, preference.handle, most, found.data(), &count);
  if (asked == CUBLAS_STATUS_NOT_SUPPORTED || (asked != CUBLAS_STATUS_SUCCESS && plan.epilogue != GemmEpilogue::none))
    return {};
  check(asked, "asking for algorithms");
  found.resize(static_cast<std::size_t>(count));
  return found;
}

// Rounds a size up to three significant bits: at most by a quarter.
std::int64_t rounded(std::int64_t size) {
  const std::int64_t unit =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size))) / 4);
  return GroupedRows::rounded(size, unit);
}

// A product with a rounded number of rows that data decides: of A and C, or where A is stored transposed the number
// over which it sums, rows of A and B. The operands have no such rows; only their descriptions are used.
struct AboutAs {
  Gemm work;
  std::vector<exec::Operand> operands;
  AboutAs(const Gemm& exact, std::span<const exec::Operand> of_exact)
      : work(exact), operands(of_exact.begin(), of_exact.end()) {
    if (!exact.trans_a)
      work.m = operands[0].rows = operands.back().rows = rounded(exact.m);
    else if (!exact.trans_b)
      work.k = operands[0].rows = operands[1].rows = rounded(exact.k);
  }
};

// Calls start() for each product that cuBLASLt has, codes and scales apart.
void for_each_apart(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream,
                    const StartProduct& start) {
  if (!work.has_codes()) return start(work, operands, stream);
  if (has_block_scales(work)) require_block_scales();
  for_each_product(work, operands, stream, [&](const Gemm& one, std::span<const exec::Operand> all, const Stream& on) {
    const CodesApart apart = codes_apart(one, all, on, true);
    start(one, apart.operands, apart.stream);
  });
}

}  // namespace

GemmRunner::GemmRunner(int sms, Epilogues epilogues)
    : sms_(sms),
      epilogues_(epilogues),
      file_(epilogues == Epilogues::always ? PlanFile() : PlanFile(plan_folder(), made_for(sms))) {
  check(cublasLtCreate(&handle_), "starting");
}
GemmRunner::~GemmRunner() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

GemmRunner::Key GemmRunner::key_of(const Gemm& work, std::span<const exec::Operand> operands) {
  const exec::Operand& c = operands.back();
  return {
      work.m,
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
      alignment_of(operands[0]),
      alignment_of(operands[1]),
      alignment_of(c),
      alignment_of(added_of(work, operands)),
      alignment_of_epilogue(work, operands),
      static_cast<std::int64_t>(work.epilogue) +
          (work.has_codes()
               ? 16 + 32 * work.split_accumulation + 64 * static_cast<std::int64_t>(operands[1].dtype) +
                     1024 * static_cast<std::int64_t>(work.scaling_b) + 8192 * static_cast<std::int64_t>(work.scaling_a)
               : 0),
      work.epilogue == GemmEpilogue::none ? 0 : operands[work.x_index()].ld};
}

std::vector<std::string> GemmRunner::notes() const {
  std::vector<std::string> notes;
  if (from_file_ > 0)
    notes.push_back(fmt::format("{} GEMMs run as they were found to be fastest before: {}", from_file_, file_.path()));
  if (!file_.note().empty()) notes.push_back(file_.note());
  return notes;
}

bool GemmRunner::tune(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  bool has_epilogue = true;
  for_each_apart(work, operands, stream, [&](const Gemm& one, std::span<const exec::Operand> all, const Stream& on) {
    has_epilogue = tune(key_of(one, all), one, all, on) && has_epilogue;
  });
  return has_epilogue;
}

bool GemmRunner::tune(const Key& key, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  auto& plan = plans_[key];
  if (!plan) {
    PlanFile::Numbers numbers(key.begin(), key.end());
    numbers.push_back(static_cast<std::int64_t>(stream.scratch_bytes));
    plan = kept(numbers, work, operands, stream);
    if (plan) {
      ++from_file_;
    } else {
      plan = measured(work, operands, stream);
      file_.put(numbers, plan->numbers());
    }
  }
  return plan->epilogue == work.epilogue;
}

std::unique_ptr<GemmRunner::Plan> GemmRunner::kept(const PlanFile::Numbers& key, const Gemm& work,
                                                   std::span<const exec::Operand> operands,
                                                   const Stream& stream) const {
  const PlanFile::Numbers* numbers = file_.find(key);
  if (numbers == nullptr || numbers->size() != Plan::kNumbers) return nullptr;
  const auto epilogue = static_cast<GemmEpilogue>((*numbers)[0]);
  const Dtype sums = (*numbers)[1] != 0 ? Dtype::bf16 : Dtype::f32;
  std::unique_ptr<Plan> plan;
  const auto takes = [&](const Gemm& one, std::span<const exec::Operand> of_one) {
    plan = std::make_unique<Plan>(one, of_one, sms_, sums);
    plan->take(*numbers);
    plan->point_to(one, of_one, stream);
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_, plan->operation, plan->a, plan->b, plan->added, plan->c, &plan->algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= plan->workspace_bytes(one, stream);
  };
  if (epilogue == work.epilogue) return takes(work, operands) ? std::move(plan) : nullptr;
  if (epilogue != GemmEpilogue::none && !(epilogue == GemmEpilogue::gelu_backward && work.sums_columns()))
    return nullptr;
  const Part product = parts_with(epilogue, work).front();
  return takes(std::get<Gemm>(product.work), exec::operands_of(product, operands)) ? std::move(plan) : nullptr;
}

void GemmRunner::propose(Plan& plan, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const std::vector<cublasLtMatmulHeuristicResult_t> found = candidates_of(plan, handle_, work, operands, stream, 1);
  if (found.empty()) throw no_algorithm(work);
  plan.algorithm = found.front().algo;
}

std::unique_ptr<GemmRunner::Plan> GemmRunner::measured(const Gemm& work, std::span<const exec::Operand> operands,
                                                       const Stream& stream) {
  // Sums in f32 lose nothing, but for bf16 operands cuBLAS may support only bf16 sums.
  std::unique_ptr<Plan> plan = fastest(work, operands, stream, Dtype::f32);
  if (!plan && bias_sums_of(work) && operands[0].dtype == Dtype::bf16)
    plan = fastest(work, operands, stream, Dtype::bf16);
  if (work.epilogue != GemmEpilogue::none && !(plan && epilogues_ == Epilogues::always)) {
    // An epilogue leaves fewer algorithms to choose from (sums of a bias: apparently none that cuts k), which may cost
    // more than a separate kernel.
    std::vector<GemmEpilogue> others = {GemmEpilogue::none};
    if (work.sums_columns()) others.insert(others.begin(), GemmEpilogue::gelu_backward);
    if (plan) plan->ms = time_ms([&] { run(*plan, work, operands, stream); }, stream);
    for (const GemmEpilogue epilogue : others) {
      const Part product = parts_with(epilogue, work).front();
      auto apart = fastest(std::get<Gemm>(product.work), exec::operands_of(product, operands), stream, Dtype::f32);
      if (!apart) continue;
      apart->ms = time_ms([&] { run(*apart, work, operands, stream); }, stream);
      if (!plan || apart->ms < kWorthIt * plan->ms) plan = std::move(apart);
    }
  }
  if (!plan) throw no_algorithm(work);
  return plan;
}

std::unique_ptr<GemmRunner::Plan> GemmRunner::fastest(const Gemm& work, std::span<const exec::Operand> operands,
                                                      const Stream& stream, Dtype sums) {
  auto plan = std::make_unique<Plan>(work, operands, sms_, sums);
  plan->point_to(work, operands, stream);
  const std::vector<cublasLtMatmulHeuristicResult_t> found =
      candidates_of(*plan, handle_, work, operands, stream, kCandidates);
  float best_ms = std::numeric_limits<float>::infinity();
  const auto start = [&](const cublasLtMatmulAlgo_t& how) {
    if (plan->start(work, handle_, operands, how, stream) == CUBLAS_STATUS_SUCCESS) return true;
    cudaGetLastError();  // clears an error that the next launch would report as its own
    return false;
  };
  for (const cublasLtMatmulHeuristicResult_t& one : found) {
    const cublasLtMatmulAlgo_t& how = one.algo;
    if (!start(how)) continue;
    if (time_ms([&] { start(how); }, stream, 1, 1) > std::max(kHopeless * best_ms, kLeast_ms)) continue;
    const float fastest_ms = time_ms([&] { start(how); }, stream);
    if (fastest_ms < kWorthIt * best_ms) {
      best_ms = fastest_ms;
      plan->algorithm = how;
    }
  }
  if (best_ms == std::numeric_limits<float>::infinity()) return nullptr;
  return plan;
}

void GemmRunner::run(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  for_each_apart(work, operands, stream, [&](const Gemm& one, std::span<const exec::Operand> all, const Stream& on) {
    const auto found = plans_.find(key_of(one, all));
    assert(found != plans_.end() && "tuned before");
    run(*found->second, one, all, on);
  });
}

void GemmRunner::run_untuned(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  for_each_apart(work, operands, stream, [&](const Gemm& one, std::span<const exec::Operand> all, const Stream& on) {
    assert(one.epilogue == GemmEpilogue::none);
    Plan plan(one, all, sms_, Dtype::f32);
    plan.point_to(one, all, on);
    const AboutAs about(one, all);
    const std::pair key(key_of(about.work, about.operands), on.scratch_bytes);
    const auto known = untuned_.find(key);
    if (known != untuned_.end()) {
      plan.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(known->second);
      if (plan.start(one, handle_, all, plan.algorithm, on) == CUBLAS_STATUS_SUCCESS) return;
      cudaGetLastError();  // clears an error that the next launch would report as its own
    }
    // The proposal depends on the key alone, so that the order in which sizes are met changes no bit.
    if (known == untuned_.end()) {
      Plan of_key(about.work, about.operands, sms_, Dtype::f32);
      of_key.point_to(about.work, about.operands, on);
      propose(of_key, about.work, about.operands, on);
      if (untuned_.size() > kMostUntuned) untuned_.clear();
      untuned_[key] = std::bit_cast<Algorithm>(of_key.algorithm);
      if (plan.start(one, handle_, all, of_key.algorithm, on) == CUBLAS_STATUS_SUCCESS) return;
      cudaGetLastError();
    }
    propose(plan, one, all, on);
    check(plan.start(one, handle_, all, plan.algorithm, on), "starting a GEMM");
  });
}

void GemmRunner::run(Plan& plan, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  if (plan.epilogue == work.epilogue) {
    plan.point_to(work, operands, stream);
    check(plan.start(work, handle_, operands, plan.algorithm, stream), "starting a GEMM");
    const auto to = bias_sums_of(work);
    if (!to) return;
    const BiasSums bias(work, plan.sums, stream);
    return launch_work(Elementwise{ElementwiseFn::column_sum, 1, bias.sums.cols}, std::array{bias.sums, operands[*to]},
                       bias.stream);
  }
  const std::vector<Part> parts = parts_with(plan.epilogue, work);
  const Gemm& alone = std::get<Gemm>(parts[0].work);
  const std::vector<exec::Operand> of_gemm = exec::operands_of(parts[0], operands);
  plan.point_to(alone, of_gemm, stream);
  check(plan.start(alone, handle_, of_gemm, plan.algorithm, stream), "starting a GEMM");
  for (std::size_t i = 1; i < parts.size(); ++i)
    launch_work(parts[i].work, exec::operands_of(parts[i], operands), stream);
}

}  // namespace stretto::cuda
