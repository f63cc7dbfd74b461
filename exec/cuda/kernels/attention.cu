// Attention without tensor cores: for shapes, and machines, that cuDNN's fused attention is not there for. A warp a
// query (forward, dq) or a key (dk, dv), its lanes along the head; scores are never stored. The algorithm is
// FlashAttention-2's (arXiv 2307.08691), in tiles of one row.
#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/philox.hpp"

namespace stretto::cuda {
namespace {

constexpr int kDims = 8;  // of a head that a lane has: heads of up to 256
constexpr unsigned kWarpsOfBlock = 4;
constexpr int kKeys = 4;  // of one draw of dropout

struct Shape {
  std::int64_t batch, heads, kv_heads, seq;
  int head_dim;
  bool causal;
  float scale;
  std::int64_t first_head;  // of all heads of the layer, where this rank has a part of them
  bool drops;
  DropoutMask mask;
};

// Columns of one head, lane by lane.
using Lane = float[kDims];
template <class T>
__device__ void load_lane(Lane& to, const T* head, int head_dim) {
#pragma unroll
  for (int i = 0; i < kDims; ++i) {
    const int d = static_cast<int>(threadIdx.x) + i * kWarp;
    to[i] = d < head_dim ? widened(head[d]) : 0.0f;
  }
}
template <class T>
__device__ void store_lane(T* head, const Lane& from, int head_dim, float factor = 1.0f) {
#pragma unroll
  for (int i = 0; i < kDims; ++i) {
    const int d = static_cast<int>(threadIdx.x) + i * kWarp;
    if (d < head_dim) head[d] = rounded<T>(from[i] * factor);
  }
}
__device__ inline float dot(const Lane& a, const Lane& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kDims; ++i) sum += a[i] * b[i];
  return warp_sum(sum);
}
__device__ inline void add(Lane& to, const Lane& from, float factor) {
#pragma unroll
  for (int i = 0; i < kDims; ++i) to[i] += factor * from[i];
}

// Which row of which head a warp has; false when there is none left.
struct Place {
  std::int64_t batch = 0, head = 0, row = 0;
  __device__ bool find(const Shape& s, std::int64_t heads) {
    std::int64_t index = std::int64_t{blockIdx.x} * kWarpsOfBlock + threadIdx.y;
    if (index >= s.batch * heads * s.seq) return false;
    row = index % s.seq;
    head = index / s.seq % heads;
    batch = index / (s.seq * heads);
    return true;
  }
};

// Columns of q, k and v in a row of qkv.
__device__ inline std::int64_t q_col(const Shape& s, std::int64_t head) { return head * s.head_dim; }
__device__ inline std::int64_t k_col(const Shape& s, std::int64_t kv_head) { return (s.heads + kv_head) * s.head_dim; }
__device__ inline std::int64_t v_col(const Shape& s, std::int64_t kv_head) {
  return (s.heads + s.kv_heads + kv_head) * s.head_dim;
}
// The dropout factors for the probabilities of a query's keys [4 · n, 4 · n + 4).
__device__ inline void factors_of(const Shape& s, const Place& at, std::int64_t head, std::int64_t query,
                                  std::int64_t keys, float (&out)[kKeys]) {
  for (int i = 0; i < kKeys; ++i) out[i] = 1.0f;
  if (s.drops) s.mask.factors(at.batch, (s.first_head + head) * s.seq + query, keys, out);
}

template <class T>
__global__ void forward_kernel(Shape s, Rows<const T> qkv, Rows<T> out, Rows<float> lse) {
  Place at;
  if (!at.find(s, s.heads)) return;
  const std::int64_t kv = at.head / (s.heads / s.kv_heads), first = at.batch * s.seq;
  Lane q, x, sum = {};
  load_lane(q, qkv.row(first + at.row) + q_col(s, at.head), s.head_dim);
  float top = -INFINITY, total = 0;
  const std::int64_t keys = s.causal ? at.row + 1 : s.seq;
  for (std::int64_t begin = 0; begin < keys; begin += kKeys) {
    float factor[kKeys];
    factors_of(s, at, at.head, at.row, begin, factor);
    for (int i = 0; i < kKeys && begin + i < keys; ++i) {
      const T* row = qkv.row(first + begin + i);
      load_lane(x, row + k_col(s, kv), s.head_dim);
      const float score = dot(q, x) * s.scale, higher = max_or_nan(top, score);
      const float shrink = __expf(top - higher), p = __expf(score - higher);
      top = higher;
      total = total * shrink + p;
      load_lane(x, row + v_col(s, kv), s.head_dim);
#pragma unroll
      for (int d = 0; d < kDims; ++d) sum[d] *= shrink;
      add(sum, x, p * factor[i]);
    }
  }
  store_lane(out.row(first + at.row) + q_col(s, at.head), sum, s.head_dim, 1.0f / total);
  if (threadIdx.x == 0) lse.row(at.batch * s.heads + at.head)[at.row] = top + logf(total);
}

template <class T>
__global__ void dq_kernel(Shape s, Rows<const T> qkv, Rows<const T> out, Rows<const float> lse, Rows<const T> dout,
                          Rows<T> dqkv) {
  Place at;
  if (!at.find(s, s.heads)) return;
  const std::int64_t kv = at.head / (s.heads / s.kv_heads), first = at.batch * s.seq, row = first + at.row;
  Lane q, d, x, dq = {};
  load_lane(q, qkv.row(row) + q_col(s, at.head), s.head_dim);
  load_lane(d, dout.row(row) + q_col(s, at.head), s.head_dim);
  load_lane(x, out.row(row) + q_col(s, at.head), s.head_dim);
  const float mean = dot(d, x), shift = lse.row(at.batch * s.heads + at.head)[at.row];
  const std::int64_t keys = s.causal ? at.row + 1 : s.seq;
  for (std::int64_t begin = 0; begin < keys; begin += kKeys) {
    float factor[kKeys];
    factors_of(s, at, at.head, at.row, begin, factor);
    for (int i = 0; i < kKeys && begin + i < keys; ++i) {
      Lane k;
      load_lane(k, qkv.row(first + begin + i) + k_col(s, kv), s.head_dim);
      load_lane(x, qkv.row(first + begin + i) + v_col(s, kv), s.head_dim);
      const float p = __expf(dot(q, k) * s.scale - shift);
      add(dq, k, p * (dot(d, x) * factor[i] - mean) * s.scale);
    }
  }
  store_lane(dqkv.row(row) + q_col(s, at.head), dq, s.head_dim);
}

// The query heads of the group one after the other.
template <class T>
__global__ void dkv_kernel(Shape s, Rows<const T> qkv, Rows<const T> out, Rows<const float> lse, Rows<const T> dout,
                           Rows<T> dqkv) {
  Place at;
  if (!at.find(s, s.kv_heads)) return;
  const std::int64_t group = s.heads / s.kv_heads, first = at.batch * s.seq;
  Lane k, v, x, d, dk = {}, dv = {};
  load_lane(k, qkv.row(first + at.row) + k_col(s, at.head), s.head_dim);
  load_lane(v, qkv.row(first + at.row) + v_col(s, at.head), s.head_dim);
  for (std::int64_t head = at.head * group; head < (at.head + 1) * group; ++head)
    for (std::int64_t query = s.causal ? at.row : 0; query < s.seq; ++query) {
      load_lane(d, dout.row(first + query) + q_col(s, head), s.head_dim);
      load_lane(x, out.row(first + query) + q_col(s, head), s.head_dim);
      const float mean = dot(d, x);
      load_lane(x, qkv.row(first + query) + q_col(s, head), s.head_dim);
      const float p = __expf(dot(x, k) * s.scale - lse.row(at.batch * s.heads + head)[query]);
      float factors[kKeys];
      factors_of(s, at, head, query, at.row / kKeys * kKeys, factors);
      float factor = factors[0];
#pragma unroll
      for (int i = 1; i < kKeys; ++i)
        if (at.row % kKeys == i) factor = factors[i];
      add(dv, d, p * factor);
      add(dk, x, p * (dot(d, v) * factor - mean) * s.scale);
    }
  store_lane(dqkv.row(first + at.row) + k_col(s, at.head), dk, s.head_dim);
  store_lane(dqkv.row(first + at.row) + v_col(s, at.head), dv, s.head_dim);
}

}  // namespace

void run_kernel(const Attention& work, std::span<const exec::Operand> o, const Stream& stream) {
  if (work.head_dim > kDims * kWarp)
    throw runtime_failure("attention kernels are for heads of up to " + std::to_string(kDims * kWarp) + ", not " +
                          std::to_string(work.head_dim));
  Shape s{work.batch,
          work.heads,
          work.kv_heads,
          work.seq,
          static_cast<int>(work.head_dim),
          work.causal,
          1.0f / std::sqrt(static_cast<float>(work.head_dim)),
          work.first_head.value(),
          work.dropout > 0,
          {}};
  if (s.drops)
    s.mask = {static_cast<const std::int32_t*>(o.back().data), static_cast<std::uint32_t>(DropoutSite::attention),
              static_cast<std::uint64_t>(std::ceil(work.dropout * 4294967296.0)),
              static_cast<float>(1 / (1 - work.dropout))};
  const auto blocks = [&](std::int64_t heads) {
    return dim3{static_cast<unsigned>(ceil_div(work.batch * heads * work.seq, kWarpsOfBlock)), 1, 1};
  };
  const dim3 block{kWarp, kWarpsOfBlock, 1};
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    const Rows<const T> qkv = rows_of<const T>(o[0]);
    if (work.pass == Pass::forward)
      return launch(stream, blocks(work.heads), block, forward_kernel<T>, s, qkv, rows_of<T>(o[1]),
                    rows_of<float>(o[2]));
    launch(stream, blocks(work.heads), block, dq_kernel<T>, s, qkv, rows_of<const T>(o[1]), rows_of<const float>(o[2]),
           rows_of<const T>(o[3]), rows_of<T>(o[4]));
    launch(stream, blocks(work.kv_heads), block, dkv_kernel<T>, s, qkv, rows_of<const T>(o[1]),
           rows_of<const float>(o[2]), rows_of<const T>(o[3]), rows_of<T>(o[4]));
  });
}

}  // namespace stretto::cuda
