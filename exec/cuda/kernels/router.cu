// The router of experts: a warp takes a token's scores through one block's shared memory.
#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/positions.hpp"
#include "exec/cuda/kernels/report.hpp"

namespace stretto::cuda {
namespace {

constexpr float kSmallestSum = 1e-20f;  // of sigmoids, Megatron-LM's
constexpr int kMostGroups = 256;
// Experts that a token's shared memory has room for: two sizes, so that few experts leave room for many tokens.
constexpr int kFewExperts = 512, kMostExperts = 4096;

// Scores of one token, and what experts are chosen by: NaN where an expert may not be, or is already.
template <int kMost>
struct Token {
  float score[kMost], ranked[kMost];
  float of_group[kMostGroups];
  std::uint16_t chosen[kMost];
};

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

// Returns the index of the largest value that is no NaN, of equals the first; -1 where all are. Every lane gets it.
__device__ inline int largest_of(const float* values, int count) {
  float top = 0;
  int at = -1;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp)
    if (values[i] == values[i] && (at < 0 || values[i] > top)) {
      top = values[i];
      at = i;
    }
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, top, mask);
    const int other_at = __shfl_xor_sync(0xffffffffu, at, mask);
    if (other_at >= 0 && (at < 0 || other > top || (other == top && other_at < at))) {
      top = other;
      at = other_at;
    }
  }
  return at;
}

// Takes the `count` largest of `values`, which become NaN, into `chosen`, the largest first.
__device__ inline void take_largest(float* values, int among, int count, std::uint16_t* chosen) {
  for (int j = 0; j < count; ++j) {
    const int at = largest_of(values, among);
    __syncthreads();
    if (threadIdx.x == 0) {
      chosen[j] = static_cast<std::uint16_t>(at < 0 ? j : at);
      values[chosen[j]] = nanf("");
    }
    __syncthreads();
  }
}

// The softmax of x(i), i < count: exp(x − top) / sum.
struct SoftmaxOf {
  float top = -INFINITY, sum = 0;
  template <class X>
  __device__ SoftmaxOf(int count, X x) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp) top = max_or_nan(top, x(i));
    top = warp_max(top);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp) sum += expf(x(i) - top);
    sum = warp_sum(sum);
  }
  __device__ float of(float x) const { return expf(x - top) / sum; }
  __device__ float lse() const { return top + logf(sum); }
};

// Leaves only experts of the best groups. A group's score is the sum of its best experts'.
template <int kMost>
__device__ void keep_best_groups(const Route& work, Token<kMost>& token) {
  const int groups = static_cast<int>(work.groups), size = static_cast<int>(work.experts / work.groups),
            best = static_cast<int>(work.topk / work.group_topk);
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += kWarp) {
    const float* of_group = token.ranked + g * size;
    float sum = 0, before = INFINITY;
    int counted = 0;
    // From the largest value down; equal ones count as often as they are there.
    while (counted < best) {
      float next = -INFINITY;
      int times = 0;
      for (int i = 0; i < size; ++i) {
        const float x = of_group[i];
        if (x < before && x > next) next = x, times = 0;
        if (x == next) ++times;
      }
      if (times == 0) break;  // only −∞ is left, and added below
      for (int n = 0; n < times && counted < best; ++n, ++counted) sum += next;
      before = next;
    }
    token.of_group[g] = counted < best ? -INFINITY : sum;
  }
  __syncthreads();
  take_largest(token.of_group, groups, static_cast<int>(work.group_topk), token.chosen);
  for (int e = static_cast<int>(threadIdx.x); e < work.experts; e += kWarp) {
    const float of_group = token.of_group[e / size];
    if (of_group == of_group) token.ranked[e] = nanf("");  // the group is not taken
  }
  __syncthreads();
}

template <int kMost>
__global__ void route_kernel(Route work, Rows<const float> logits, const float* bias, Rows<std::int32_t> indices,
                             Rows<float> probabilities) {
  __shared__ Token<kMost> token;
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x), experts = static_cast<int>(work.experts),
            topk = static_cast<int>(work.topk);
  const float* x = logits.row(row);
  const bool is_softmax = work.score == RouterScore::softmax;
  const SoftmaxOf all(is_softmax && work.pre_softmax ? experts : 0, [&](int e) { return x[e]; });
  for (int e = lane; e < experts; e += kWarp) {
    const float score = !is_softmax ? sigmoid_of(x[e]) : work.pre_softmax ? all.of(x[e]) : x[e];
    const float ranked = bias == nullptr ? score : score + bias[e];
    token.score[e] = score;
    token.ranked[e] = ranked == ranked ? ranked : -INFINITY;
  }
  __syncthreads();
  if (work.groups > 0) keep_best_groups(work, token);
  take_largest(token.ranked, experts, topk, token.chosen);

  const SoftmaxOf of_chosen(is_softmax && !work.pre_softmax ? topk : 0,
                            [&](int j) { return token.score[token.chosen[j]]; });
  float sum = 0;
  for (int j = lane; j < topk; j += kWarp) sum += token.score[token.chosen[j]];
  sum = warp_sum(sum) + kSmallestSum;
  for (int j = lane; j < topk; j += kWarp) {
    const int e = token.chosen[j];
    int place = 0;  // among the chosen, in ascending order
    for (int i = 0; i < topk; ++i) place += token.chosen[i] < e;
    float p = token.score[e];
    if (is_softmax && !work.pre_softmax) p = of_chosen.of(p);
    if (!is_softmax && topk > 1) p /= sum;
    indices.row(row)[place] = e;
    probabilities.row(row)[place] = p * static_cast<float>(work.scaling);
  }
}

template <int kMost>
__global__ void route_gradient_kernel(Route work, Rows<const float> logits, Rows<const std::int32_t> indices,
                                      Rows<const float> d_probabilities, Rows<float> d_logits, Report report) {
  __shared__ float d[kMost];
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x), experts = static_cast<int>(work.experts),
            topk = static_cast<int>(work.topk);
  const float *x = logits.row(row), *dp = d_probabilities.row(row);
  const std::int32_t* chosen = indices.row(row);
  const auto scaling = static_cast<float>(work.scaling);
  const auto is_there = [&](int j) { return chosen[j] >= 0 && chosen[j] < experts; };
  // Σ term(j) over the experts that the token goes through.
  const auto sum_of = [&](auto term) {
    float sum = 0;
    for (int j = lane; j < topk; j += kWarp)
      if (is_there(j)) sum += term(j);
    return warp_sum(sum);
  };
  for (int j = lane; j < topk; j += kWarp)
    if (!is_there(j)) report(Fault::Kind::index, chosen[j]);

  const bool uses_all = work.score == RouterScore::softmax && work.pre_softmax;
  const SoftmaxOf all(uses_all || work.z_scale != 0 ? experts : 0, [&](int e) { return x[e]; });
  float mean = 0;
  if (uses_all) mean = sum_of([&](int j) { return all.of(x[chosen[j]]) * dp[j]; });
  for (int e = lane; e < experts; e += kWarp) d[e] = uses_all ? -scaling * mean * all.of(x[e]) : 0.0f;
  __syncthreads();
  if (work.score == RouterScore::sigmoid) {
    const float sum = sum_of([&](int j) { return sigmoid_of(x[chosen[j]]); }) + kSmallestSum;
    const float weighted = sum_of([&](int j) { return sigmoid_of(x[chosen[j]]) * dp[j]; });
    for (int j = lane; j < topk; j += kWarp) {
      if (!is_there(j)) continue;
      const float s = sigmoid_of(x[chosen[j]]), of_share = topk > 1 ? (dp[j] - weighted / sum) / sum : dp[j];
      d[chosen[j]] = scaling * of_share * s * (1.0f - s);
    }
  } else if (uses_all) {
    for (int j = lane; j < topk; j += kWarp)
      if (is_there(j)) d[chosen[j]] += scaling * all.of(x[chosen[j]]) * dp[j];
  } else {
    const SoftmaxOf of_chosen(topk, [&](int j) { return is_there(j) ? x[chosen[j]] : -INFINITY; });
    const float centre = sum_of([&](int j) { return of_chosen.of(x[chosen[j]]) * dp[j]; });
    for (int j = lane; j < topk; j += kWarp)
      if (is_there(j)) d[chosen[j]] = scaling * of_chosen.of(x[chosen[j]]) * (dp[j] - centre);
  }
  __syncthreads();
  const float of_z = work.z_scale == 0 ? 0.0f : static_cast<float>(2 * work.z_scale) * all.lse();
  for (int e = lane; e < experts; e += kWarp)
    d_logits.row(row)[e] = d[e] + (work.z_scale == 0 ? 0.0f : of_z * all.of(x[e]));
}

// Which row of a balance loss's counts a token's are.
struct CountsRow {
  bool by_sequence;
  std::int64_t first_row;
  Positions positions;
  explicit CountsRow(const BalanceLoss& work)
      : by_sequence(work.sequences > 1), first_row(work.first_row.value()), positions(work.parts, work.seq) {}
  __device__ std::int64_t of(std::int64_t row) const { return by_sequence ? positions.sample(first_row + row) : 0; }
};

__global__ void zero_kernel(std::int64_t rows, std::int64_t cols, Rows<float> to) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y)
    to.row(row)[col] = 0.0f;
}

// Counts are whole numbers, whose sum in f32 is exact in any order, up to 2^24.
template <int kMost>
__global__ void balance_kernel(int experts, int topk, CountsRow counts_row, Rows<const float> logits,
                               Rows<float> counts) {
  __shared__ float ranked[kMost];
  __shared__ std::uint16_t chosen[kMost];
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < experts; e += kWarp) {
    const float x = logits.row(row)[e];
    ranked[e] = x == x ? x : -INFINITY;
  }
  __syncthreads();
  take_largest(ranked, experts, topk, chosen);
  float* const to = counts.row(counts_row.of(row));
  for (int j = lane; j < topk; j += kWarp) atomicAdd(to + chosen[j], 1.0f);
}

__global__ void balance_gradient_kernel(int experts, bool is_softmax, float scale, CountsRow counts_row,
                                        Rows<const float> logits, Rows<const float> counts, Rows<float> d_logits) {
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const float *x = logits.row(row), *slope = counts.row(counts_row.of(row));
  float* const to = d_logits.row(row);
  const SoftmaxOf all(is_softmax ? experts : 0, [&](int e) { return x[e]; });
  float sum = 0;
  for (int e = lane; e < experts && !is_softmax; e += kWarp) sum += sigmoid_of(x[e]);
  sum = warp_sum(sum) + kSmallestSum;
  const auto share = [&](int e) { return is_softmax ? all.of(x[e]) : sigmoid_of(x[e]) / sum; };
  float mean = 0;
  for (int e = lane; e < experts; e += kWarp) mean += share(e) * slope[e];
  mean = warp_sum(mean);
  for (int e = lane; e < experts; e += kWarp) {
    const float p = share(e), d = scale * (slope[e] - mean);
    // The slope of a sigmoid s = p · sum is s (1 − s).
    to[e] += is_softmax ? p * d : p * (1.0f - p * sum) * d;
  }
}

__global__ void count_loads_kernel(std::int64_t rows, std::int64_t topk, std::int64_t experts,
                                   Rows<const std::int32_t> indices, float* loads, Report report) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * topk;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int32_t e = indices.row(i / topk)[i % topk];
    if (e < 0 || e >= experts)
      report(Fault::Kind::index, e);
    else
      atomicAdd(loads + e, 1.0f);
  }
}

// One block.
__global__ void mean_counts_kernel(std::int64_t experts, float* counts, float* tally) {
  float now = 0, all = 0;
  for (std::int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    tally[e] += counts[e];
    now += counts[e];
    all += tally[e];
  }
  const float share = block_sum(now) / block_sum(all);
  for (std::int64_t e = threadIdx.x; e < experts; e += blockDim.x) counts[e] = tally[e] * share;
}

__global__ void move_bias_kernel(std::int64_t experts, float rate, Rows<const float> loads, Rows<float> bias) {
  const float* of_row = loads.row(blockIdx.x);
  float sum = 0;
  for (std::int64_t e = threadIdx.x; e < experts; e += blockDim.x) sum += of_row[e];
  const float mean = block_sum(sum) / static_cast<float>(experts);
  for (std::int64_t e = threadIdx.x; e < experts; e += blockDim.x)
    bias.row(blockIdx.x)[e] += rate * static_cast<float>((mean > of_row[e]) - (mean < of_row[e]));
}

void require_room(std::int64_t experts, std::int64_t groups) {
  if (experts > kMostExperts || groups > kMostGroups)
    throw runtime_failure("the router's kernels are for up to " + std::to_string(kMostExperts) + " experts in " +
                          std::to_string(kMostGroups) + " groups");
}

// Starts a warp for each row, of a kernel for few experts or for many.
template <class Kernel, class... Arguments>
void launch_rows(const Stream& stream, std::int64_t rows, std::int64_t experts, Kernel few, Kernel many,
                 const Arguments&... arguments) {
  launch(stream, {static_cast<unsigned>(rows), 1, 1}, {kWarp, 1, 1}, experts <= kFewExperts ? few : many, arguments...);
}

}  // namespace

void run_kernel(const Route& work, std::span<const exec::Operand> o, const Stream& stream) {
  require_room(work.experts, work.groups);
  const std::size_t at = work.indices_at();
  const Rows<const float> logits = rows_of<const float>(o[0]);
  if (work.pass == Pass::forward)
    return launch_rows(stream, work.rows, work.experts, route_kernel<kFewExperts>, route_kernel<kMostExperts>, work,
                       logits, work.biased ? static_cast<const float*>(o[1].data) : nullptr,
                       rows_of<std::int32_t>(o[at]), rows_of<float>(o[at + 1]));
  launch_rows(stream, work.rows, work.experts, route_gradient_kernel<kFewExperts>, route_gradient_kernel<kMostExperts>,
              work, logits, rows_of<const std::int32_t>(o[1]), rows_of<const float>(o[2]), rows_of<float>(o[3]),
              Report(stream));
}

void run_kernel(const BalanceLoss& work, std::span<const exec::Operand> o, const Stream& stream) {
  require_room(work.experts, 0);
  const CountsRow counts_row(work);
  const Rows<const float> logits = rows_of<const float>(o[0]);
  const int experts = static_cast<int>(work.experts);
  if (work.pass == Pass::dgrad)
    return launch(stream, {static_cast<unsigned>(work.rows), 1, 1}, {kWarp, 1, 1}, balance_gradient_kernel, experts,
                  work.score == RouterScore::softmax, static_cast<float>(work.scale), counts_row, logits,
                  rows_of<const float>(o[1]), rows_of<float>(o[2]));
  const Tiling t = tile(work.sequences, work.experts);
  launch(stream, t.grid, t.block, zero_kernel, work.sequences, work.experts, rows_of<float>(o[1]));
  launch_rows(stream, work.rows, work.experts, balance_kernel<kFewExperts>, balance_kernel<kMostExperts>, experts,
              static_cast<int>(work.topk), counts_row, logits, rows_of<float>(o[1]));
}

void run_kernel(const CountLoads& work, std::span<const exec::Operand> o, const Stream& stream) {
  const std::int64_t blocks = std::min(ceil_div(work.rows * work.topk, kThreads), std::int64_t{4} * stream.sms);
  launch(stream, {static_cast<unsigned>(blocks), 1, 1}, {kThreads, 1, 1}, count_loads_kernel, work.rows, work.topk,
         work.experts, rows_of<const std::int32_t>(o[0]), static_cast<float*>(o[1].data), Report(stream));
}

void run_kernel(const MeanCounts& work, std::span<const exec::Operand> o, const Stream& stream) {
  launch(stream, {1, 1, 1}, {kThreads, 1, 1}, mean_counts_kernel, work.experts, static_cast<float*>(o[0].data),
         static_cast<float*>(o[1].data));
}

void run_kernel(const MoveBias& work, std::span<const exec::Operand> o, const Stream& stream) {
  launch(stream, {static_cast<unsigned>(work.rows), 1, 1}, {kThreads, 1, 1}, move_bias_kernel, work.experts,
         static_cast<float>(work.rate), rows_of<const float>(o[0]), rows_of<float>(o[1]));
}

}  // namespace stretto::cuda
