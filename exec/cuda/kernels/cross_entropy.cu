#include <limits>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/sums.hpp"

namespace stretto::cuda {
namespace {

// Each row has a block of as many threads as the row has packs. Two blocks of 1,024 fill an SM, and the rows that are
// read at once stay in the L2 cache until they are read again: 132 · 2 rows of GPT-2's 50,304 logits are 27 MB of an
// H100's 50.
constexpr unsigned kMostThreads = 1024;
unsigned threads_of_row(std::int64_t packs) {
  unsigned threads = kWarp;
  while (threads < kMostThreads && threads < packs) threads *= 2;
  return threads;
}

// The classes among the columns of one shard's slice.
struct Slice {
  std::int64_t begin, classes, all;
  Slice(const Expr& first, std::int64_t cols, std::int64_t of_all)
      : begin(first.value()), classes(std::clamp<std::int64_t>(of_all - begin, 0, cols)), all(of_all) {}
  __device__ bool holds(std::int64_t target) const { return target >= begin && target < begin + classes; }
};

constexpr float kLog2OfE = 1.44269504088896f, kLnOf2 = 0.693147180559945f;
// Returns top · log2(e), rounded: compilers may keep a product exact inside a subtraction.
__device__ inline float shift_of(float top) {
#if defined(__CUDACC__)
  return __fmul_rn(top, kLog2OfE);
#else
  return fmaf(top, kLog2OfE, 0.0f);
#endif
}

// Maximum, and Σ exp(x − maximum), of the elements so far. exp(x − maximum) is 2^(x·log2(e) − shift): a multiplication
// with an addition, and a power of two.
struct Softmax {
  float top = -INFINITY, shift = -INFINITY, sum = 0;
  __device__ float exponential(float x) const { return fast_exp2(fmaf(x, kLog2OfE, -shift)); }
  // The exact shift of the maximum less the rounded one: half a unit of its last place at most.
  __device__ float rest() const { return fmaf(top, kLog2OfE, -shift); }
  template <int N>
  __device__ void see(const float (&x)[N]) {
    float highest = x[0];
#pragma unroll
    for (int n = 1; n < N; ++n) highest = max_or_nan(highest, x[n]);
    if (!(highest <= top)) {  // true for a NaN too
      top = highest;
      const float before = shift;
      shift = shift_of(top);
      sum *= fast_exp2(before - shift);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) sum += exponential(x[n]);
  }
};

// Reduces one row over the block; every thread gets the result. Reads N elements at once.
template <int N, class T>
__device__ Softmax softmax_of(const T* x, int classes) {
  Softmax own;
  const int whole = classes / N * N, stride = static_cast<int>(blockDim.x) * N;
  for (int i = static_cast<int>(threadIdx.x) * N; i < whole; i += stride) {
    float v[N];
    load(v, x + i);
    own.see(v);
  }
  if (const int rest = whole + static_cast<int>(threadIdx.x); rest < classes) {  // less than N
    const float v[1] = {widened(x[rest])};
    own.see(v);
  }
  Softmax all;
  all.top = block_max(own.top);
  all.shift = shift_of(all.top);
  // A thread without elements adds 0; where no thread has any the sum stays 0.
  all.sum = block_sum(own.sum == 0.0f ? 0.0f : own.sum * fast_exp2(own.shift - all.shift));
  return all;
}

// Combines stats[shards][3, rows] (max, Σ exp(x − max), logit of the target) to those of the whole vocabulary.
__device__ inline Softmax combined(const float* stats, std::int64_t shards, std::int64_t rows, std::int64_t row,
                                   float& target) {
  Softmax all;
  for (std::int64_t s = 0; s < shards; ++s) all.top = max_or_nan(all.top, stats[s * 3 * rows + row]);
  all.shift = shift_of(all.top);
  target = 0;
  for (std::int64_t s = 0; s < shards; ++s) {
    const float* of_shard = stats + s * 3 * rows + row;
    if (of_shard[rows] != 0.0f) all.sum += of_shard[rows] * all.exponential(of_shard[0]);
    target += of_shard[2 * rows];
  }
  return all;
}

// `stats` null: this is the whole vocabulary. nll[row] is the row's term of the loss.
template <int N, class T>
__global__ void __launch_bounds__(kMostThreads, kThreadsOfSm / kMostThreads)
    cross_entropy_kernel(std::int64_t rows, int cols, Slice slice, float scale, Rows<T> logits,
                         const std::int32_t* targets, const float* stats, std::int64_t shards, float* nll) {
  const std::int64_t row = blockIdx.x;
  T* x = logits.row(row);
  const std::int64_t target = targets[row];
  const bool is_class = target >= 0 && target < slice.all;
  const int classes = static_cast<int>(slice.classes);
  const int at = slice.holds(target) ? static_cast<int>(target - slice.begin) : -1;  // the target's column, if any
  const float logit = at >= 0 ? widened(x[at]) : 0.0f;
  float of_target = logit;
  const Softmax all = stats != nullptr ? combined(stats, shards, rows, row, of_target) : softmax_of<N>(x, classes);
  __syncthreads();  // all threads have read the logit of the target before it is overwritten
  if (threadIdx.x == 0) nll[row] = is_class ? logf(all.sum) - all.rest() * kLnOf2 - (of_target - all.top) : nanf("");
  const float factor = scale / all.sum;
  // Packs of classes alone, without comparisons, then those with padding.
  const int whole = classes / N * N, stride = static_cast<int>(blockDim.x) * N;
  for (int i = static_cast<int>(threadIdx.x) * N; i < whole; i += stride) {
    float v[N];
    load(v, x + i);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = factor * all.exponential(v[n]);
    store(x + i, v);
  }
  for (int i = whole + static_cast<int>(threadIdx.x) * N; i < cols; i += stride) {
    float v[N];
    load(v, x + i);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = i + n < classes ? factor * all.exponential(v[n]) : 0.0f;
    store(x + i, v);
  }
  // The thread that has written the target's pack writes the target again.
  const int from = at < whole ? 0 : whole;
  if (at >= 0 && (at - from) / N % static_cast<int>(blockDim.x) == static_cast<int>(threadIdx.x))
    x[at] = rounded<T>(factor * all.exponential(logit) - scale);
}

template <int N, class T>
__global__ void vocab_stats_kernel(std::int64_t rows, Slice slice, Rows<const T> logits, const std::int32_t* targets,
                                   float* stats) {
  const std::int64_t row = blockIdx.x;
  const T* x = logits.row(row);
  const Softmax own = softmax_of<N>(x, static_cast<int>(slice.classes));
  if (threadIdx.x != 0) return;
  stats[row] = own.top;
  stats[rows + row] = own.sum == 0.0f ? 0.0f : own.sum * fast_exp2(-own.rest());
  const std::int64_t target = targets[row];
  float of_target = slice.holds(target) ? widened(x[target - slice.begin]) : 0.0f;
  if (target < 0 || target >= slice.all) of_target = nanf("");
  stats[2 * rows + row] = of_target;
}

}  // namespace

void run_kernel(const CrossEntropy& work, std::span<const exec::Operand> operands, const Stream& stream) {
  assert(work.cols < std::numeric_limits<int>::max() / 2 && "32 bits count the columns and a stride beyond");
  const Slice slice(work.first_class, work.cols, work.classes);
  const auto* targets = static_cast<const std::int32_t*>(operands[1].data);
  const auto* stats = work.shards > 1 ? static_cast<const float*>(operands[2].data) : nullptr;
  auto* loss = static_cast<double*>(operands.back().data);
  if (static_cast<std::int64_t>(stream.scratch_bytes / sizeof(float)) < work.rows)
    throw runtime_failure("cross-entropy of " + std::to_string(work.rows) + " rows needs as many floats of scratch");
  auto* nll = static_cast<float*>(stream.scratch);
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = 16 / static_cast<int>(sizeof(T));
    const bool packs = work.cols % N == 0 && is_packable(rows_of<const T>(operands[0]), N);
    launch(stream, {static_cast<unsigned>(work.rows), 1, 1}, {threads_of_row(work.cols / (packs ? N : 1)), 1, 1},
           packs ? cross_entropy_kernel<N, T> : cross_entropy_kernel<1, T>, work.rows, static_cast<int>(work.cols),
           slice, static_cast<float>(work.scale), rows_of<T>(operands[0]), targets, stats, work.shards, nll);
  });
  launch(stream, {1, 1, 1}, {1024, 1, 1}, add_sum_kernel<float>, nll, work.rows,
         work.scale / static_cast<double>(work.shards), loss);
}

void run_kernel(const VocabStats& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const Slice slice(work.first_class, work.cols, work.classes);
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = 16 / static_cast<int>(sizeof(T));
    const bool packs = work.cols % N == 0 && is_packable(rows_of<const T>(operands[0]), N);
    launch(stream, {static_cast<unsigned>(work.rows), 1, 1}, {threads_of_row(work.cols / (packs ? N : 1)), 1, 1},
           packs ? vocab_stats_kernel<N, T> : vocab_stats_kernel<1, T>, work.rows, slice, rows_of<const T>(operands[0]),
           static_cast<const std::int32_t*>(operands[1].data), static_cast<float*>(operands[2].data));
  });
}

}  // namespace stretto::cuda
