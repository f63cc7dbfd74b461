#include <algorithm>
#include <type_traits>
#include <vector>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/sums.hpp"

namespace stretto::cuda {
namespace {

// The decayed ranges, as far as one launch reaches; kernels take 32 KiB of parameters (CUDA 12.1).
constexpr int kMostRanges = 1000;
struct Ranges {
  int count = 0;
  std::int64_t begin[kMostRanges], end[kMostRanges];  // ascending, without overlap
  // Sets which of the N elements from i on decay.
  template <int N>
  __device__ void hold(std::int64_t i, bool (&holds)[N]) const {
    int low = 0, high = count;  // the first range that ends after i
    while (low < high) {
      const int middle = (low + high) / 2;
      if (end[middle] > i)
        high = middle;
      else
        low = middle + 1;
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      while (low < count && end[low] <= i + n) ++low;
      holds[n] = low < count && begin[low] <= i + n;
    }
  }
};

// The scalars of a step, as on the host.
struct Step {
  float clip, beta1, beta2, rate, inverse_sqrt_correction2, eps, decay;
};
__device__ inline Step step_of(const double* hyper, double norm_squared) {
  const double lr = hyper[0], clip = hyper[5], ratio = clip / (sqrt(norm_squared) + 1e-6);
  const bool clipped = clip > 0 && !(ratio >= 1);  // a NaN norm must reach the parameters, not be ignored
  return {static_cast<float>(clipped ? ratio : 1.0),
          static_cast<float>(hyper[1]),
          static_cast<float>(hyper[2]),
          static_cast<float>(lr / hyper[6]),
          static_cast<float>(1.0 / sqrt(hyper[7])),
          static_cast<float>(hyper[3]),
          static_cast<float>(1.0 - lr * hyper[4])};
}

// `first`: index in the bucket of the launch's first element.
template <int N, class T>
__global__ void adamw_kernel(std::int64_t packs, std::int64_t first, const float* grad, const double* norm_squared,
                             const double* hyper, T* param, float* m, float* v, float* master, Ranges decayed) {
  __shared__ Step shared;
  if (threadIdx.x == 0) shared = step_of(hyper, *norm_squared);
  __syncthreads();
  const Step step = shared;
  for (std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; pack < packs;
       pack += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t i = pack * N;
    float g[N], m1[N], m2[N], p[N];
    load(g, grad + i);
    load(m1, m + i);
    load(m2, v + i);
    if (master != nullptr)
      load(p, master + i);
    else
      load(p, param + i);
    bool decays[N];
    decayed.hold(first + i, decays);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float clipped = g[n] * step.clip;
      m1[n] = step.beta1 * m1[n] + (1.0f - step.beta1) * clipped;
      m2[n] = step.beta2 * m2[n] + (1.0f - step.beta2) * clipped * clipped;
      const float update = step.rate * m1[n] / (sqrt(m2[n]) * step.inverse_sqrt_correction2 + step.eps);
      p[n] = (decays[n] ? step.decay : 1.0f) * p[n] - update;
    }
    store(m + i, m1);
    store(v + i, m2);
    store(param + i, p);
    if (master != nullptr) store(master + i, p);
  }
}

template <class T>
__global__ void squares_kernel(std::int64_t count, const T* x, double* partial) {
  double own = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const auto value = static_cast<double>(widened(x[i]));
    own += value * value;
  }
  const double total = block_sum(own);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

}  // namespace

void run_kernel(const AdamW& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const auto floats = [&](std::size_t i) { return static_cast<float*>(operands[i].data); };
  const auto doubles = [&](std::size_t i) { return static_cast<const double*>(operands[i].data); };
  const std::int64_t shard_begin = work.shard.value() * work.elements;
  with_device_type(operands[3].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = 4;
    std::vector<AdamW::Range> decayed = work.decayed;
    std::sort(decayed.begin(), decayed.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::size_t next = 0;
    for (std::int64_t begin = 0; begin < work.elements;) {
      // A launch takes as many elements as its ranges reach: all of them except in models of hundreds of layers.
      Ranges ranges;
      std::int64_t end = work.elements;
      for (; next < decayed.size(); ++next) {
        if (ranges.count == kMostRanges) {
          // The end is rounded down, so the last range of this launch may reach into the next.
          end = std::min(end, (decayed[next].begin - shard_begin) / N * N);
          --next;
          break;
        }
        if (decayed[next].end <= shard_begin + begin) continue;
        ranges.begin[ranges.count] = decayed[next].begin;
        ranges.end[ranges.count++] = decayed[next].end;
      }
      const auto run = [&]<int M>(std::integral_constant<int, M>, std::int64_t from, std::int64_t count) {
        if (count == 0) return;
        const std::int64_t packs = count / M;
        constexpr auto kernel = adamw_kernel<M, T>;
        const auto blocks = std::min(ceil_div(packs, kThreads), resident_blocks(stream, kernel, kThreads));
        launch(stream, {static_cast<unsigned>(blocks), 1, 1}, {kThreads, 1, 1}, kernel, packs, shard_begin + from,
               floats(0) + from, doubles(1), doubles(2), static_cast<T*>(operands[3].data) + from, floats(4) + from,
               floats(5) + from, work.master ? floats(6) + from : nullptr, ranges);
      };
      bool packs = true;
      for (const std::size_t i : {0, 3, 4, 5, 6})
        if (i < operands.size())
          packs = packs && reinterpret_cast<std::uintptr_t>(operands[i].data) % (N * bytes_of(operands[i].dtype)) == 0;
      const std::int64_t packed = packs ? (end - begin) / N * N : 0;
      run(std::integral_constant<int, N>{}, begin, packed);
      run(std::integral_constant<int, 1>{}, begin + packed, end - begin - packed);
      begin = end;
    }
  });
}

void run_kernel(const SumSquares& work, std::span<const exec::Operand> operands, const Stream& stream) {
  auto* partial = static_cast<double*>(stream.scratch);
  const std::int64_t fit = static_cast<std::int64_t>(stream.scratch_bytes / sizeof(double));
  std::int64_t blocks = 0;
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr auto kernel = squares_kernel<T>;
    blocks = std::min({ceil_div(work.elements, 4 * kThreads), resident_blocks(stream, kernel, kThreads), fit});
    launch(stream, {static_cast<unsigned>(blocks), 1, 1}, {kThreads, 1, 1}, kernel, work.elements,
           static_cast<const T*>(operands[0].data), partial);
  });
  launch(stream, {1, 1, 1}, {1024, 1, 1}, add_sum_kernel<double>, partial, blocks,
         1.0 / static_cast<double>(work.copies), static_cast<double*>(operands[1].data));
}

}  // namespace stretto::cuda
