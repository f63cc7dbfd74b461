// Attention without tensor cores, for shapes and machines for which cuDNN has no fused attention. Each warp computes a
// query (forward, dq) or a key (dk, dv), with its lanes along the head; scores are never stored. The algorithm is
// FlashAttention-2's (arXiv 2307.08691), in tiles of one row.
#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/philox.hpp"

namespace stretto::cuda {
namespace {

constexpr int kDims = 8;  // elements of a head for each lane: heads of up to 256
constexpr unsigned kWarpsOfBlock = 4;
constexpr int kKeys = 4;  // keys of one draw of dropout

// SequenceParts on the device: `chunk` tokens, or the whole sequence where there is one part.
struct Parts {
  std::int64_t of, first, count, chunk;
  Parts(const SequenceParts& parts, std::int64_t seq)
      : of(parts.of),
        first(parts.first.value()),
        count(parts.count),
        chunk(parts.of == 1 ? seq : seq / (2 * parts.of)) {}
  Parts() = default;

  __host__ __device__ std::int64_t runs() const { return of == 1 ? 1 : 2 * count; }
  __host__ __device__ std::int64_t tokens() const { return runs() * chunk; }  // tokens of one sequence that are held
  // Run number r of a sequence: the row of its first token, and that token's position.
  __device__ std::int64_t row(std::int64_t r, std::int64_t batch, std::int64_t sample) const {
    return of == 1 ? sample * chunk : ((r / 2 * batch + sample) * 2 + r % 2) * chunk;
  }
  __device__ std::int64_t position(std::int64_t r) const {
    if (of == 1) return 0;
    const std::int64_t part = first + r / 2;
    return (r % 2 == 0 ? part : 2 * of - 1 - part) * chunk;
  }
};

struct Shape {
  std::int64_t batch, heads, kv_heads, seq;
  Parts queries, keys;
  std::int64_t k_begin;  // column of the first key, where q and kv are one operand
  int head_dim, value_dim;
  bool causal;
  float scale;
  std::int64_t first_head;  // number of the rank's first head among all heads of the layer
  bool drops;
  DropoutMask mask;
  ScoreRules rules;
  float cap;
};

// Columns of one head, distributed over the lanes.
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

// The token and head of a warp; false when there is none left.
struct Place {
  std::int64_t batch = 0, head = 0, token = 0, row = 0, position = 0;
  __device__ bool find(const Shape& s, const Parts& parts, std::int64_t heads) {
    const std::int64_t index = std::int64_t{blockIdx.x} * kWarpsOfBlock + threadIdx.y, tokens = parts.tokens();
    if (index >= s.batch * heads * tokens) return false;
    token = index % tokens;
    head = index / tokens % heads;
    batch = index / (tokens * heads);
    const std::int64_t run = token / parts.chunk, in_run = token % parts.chunk;
    row = parts.row(run, s.batch, batch) + in_run;
    position = parts.position(run) + in_run;
    return true;
  }
};

// Return the columns of q, k and v in their rows, and of out.
__device__ inline std::int64_t q_col(const Shape& s, std::int64_t head) { return head * s.head_dim; }
__device__ inline std::int64_t k_col(const Shape& s, std::int64_t kv_head) { return s.k_begin + kv_head * s.head_dim; }
__device__ inline std::int64_t v_col(const Shape& s, std::int64_t kv_head) {
  return s.k_begin + s.kv_heads * s.head_dim + kv_head * s.value_dim;
}
__device__ inline std::int64_t out_col(const Shape& s, std::int64_t head) { return head * s.value_dim; }
// Returns the dropout factors for the probabilities of a query, at its position, and keys [4 · n, 4 · n + 4).
__device__ inline void factors_of(const Shape& s, std::int64_t batch, std::int64_t head, std::int64_t query,
                                  std::int64_t keys, float (&out)[kKeys]) {
  for (int i = 0; i < kKeys; ++i) out[i] = 1.0f;
  if (s.drops) s.mask.factors(batch, (s.first_head + head) * s.seq + query, keys, out);
}

// Return the first key that a query sees (ScoreRules::first_key, which device code cannot call), and a score with the
// slope of its cap.
__device__ inline std::int64_t first_key(const Shape& s, std::int64_t position) {
  std::int64_t first = s.rules.chunk > 0 ? position / s.rules.chunk * s.rules.chunk : 0;
  if (s.rules.window > 0 && position + 1 - s.rules.window > first) first = position + 1 - s.rules.window;
  return first;
}
struct Score {
  float value, slope;
};
__device__ inline Score capped(const Shape& s, float score) {
  if (s.cap == 0.0f) return {score, 1.0f};
  const float part = tanhf(score / s.cap);
  return {s.cap * part, 1.0f - part * part};
}

// Calls fn(row of the key, its dropout factor) for every key that the query at `at` sees, in the order of the operand.
template <class Fn>
__device__ inline void for_keys(const Shape& s, const Place& at, Fn fn) {
  for (std::int64_t run = 0; run < s.keys.runs(); ++run) {
    const std::int64_t position = s.keys.position(run), row = s.keys.row(run, s.batch, at.batch);
    std::int64_t end = position + s.keys.chunk;
    if (s.causal && at.position + 1 < end) end = at.position + 1;
    std::int64_t first = first_key(s, at.position);
    if (first < position) first = position;
    for (std::int64_t begin = first / kKeys * kKeys; begin < end; begin += kKeys) {
      float factor[kKeys];
      factors_of(s, at.batch, at.head, at.position, begin, factor);
      for (int i = 0; i < kKeys; ++i)
        if (begin + i >= first && begin + i < end) fn(row + begin + i - position, factor[i]);
    }
  }
}

template <class T>
__global__ void forward_kernel(Shape s, Rows<const T> q_rows, Rows<const T> kv_rows, Rows<T> out, Rows<float> lse,
                               const T* sinks) {
  Place at;
  if (!at.find(s, s.queries, s.heads)) return;
  const std::int64_t kv = at.head / (s.heads / s.kv_heads);
  Lane q, x, sum = {};
  load_lane(q, q_rows.row(at.row) + q_col(s, at.head), s.head_dim);
  float top = -INFINITY, total = 0;
  if (s.rules.has_sink) top = sinks == nullptr ? 0.0f : widened(sinks[at.head]), total = 1;
  for_keys(s, at, [&](std::int64_t key, float factor) {
    const T* row = kv_rows.row(key);
    load_lane(x, row + k_col(s, kv), s.head_dim);
    const float score = capped(s, dot(q, x) * s.scale).value, higher = max_or_nan(top, score);
    const float shrink = __expf(top - higher), p = __expf(score - higher);
    top = higher;
    total = total * shrink + p;
    load_lane(x, row + v_col(s, kv), s.value_dim);
#pragma unroll
    for (int d = 0; d < kDims; ++d) sum[d] *= shrink;
    add(sum, x, p * factor);
  });
  // For a query that sees none of the keys, log 0 is −∞, and the empty sum is 0.
  store_lane(out.row(at.row) + out_col(s, at.head), sum, s.value_dim, total == 0.0f ? 0.0f : 1.0f / total);
  if (threadIdx.x == 0) lse.row(at.batch * s.heads + at.head)[at.token] = total == 0.0f ? -INFINITY : top + logf(total);
}

template <class T>
__global__ void dq_kernel(Shape s, Rows<const T> q_rows, Rows<const T> kv_rows, Rows<const T> out,
                          Rows<const float> lse, Rows<const T> dout, Rows<T> dq_rows) {
  Place at;
  if (!at.find(s, s.queries, s.heads)) return;
  const std::int64_t kv = at.head / (s.heads / s.kv_heads);
  Lane q, d, x, dq = {};
  load_lane(q, q_rows.row(at.row) + q_col(s, at.head), s.head_dim);
  load_lane(d, dout.row(at.row) + out_col(s, at.head), s.value_dim);
  load_lane(x, out.row(at.row) + out_col(s, at.head), s.value_dim);
  const float mean = dot(d, x), shift = lse.row(at.batch * s.heads + at.head)[at.token];
  for_keys(s, at, [&](std::int64_t key, float factor) {
    Lane k;
    load_lane(k, kv_rows.row(key) + k_col(s, kv), s.head_dim);
    load_lane(x, kv_rows.row(key) + v_col(s, kv), s.value_dim);
    const Score score = capped(s, dot(q, k) * s.scale);
    const float p = __expf(score.value - shift);
    add(dq, k, p * (dot(d, x) * factor - mean) * score.slope * s.scale);
  });
  store_lane(dq_rows.row(at.row) + q_col(s, at.head), dq, s.head_dim);
}

// The loop takes the query heads of the group one after the other.
template <class T>
__global__ void dkv_kernel(Shape s, Rows<const T> q_rows, Rows<const T> kv_rows, Rows<const T> out,
                           Rows<const float> lse, Rows<const T> dout, Rows<T> dkv_rows) {
  Place at;
  if (!at.find(s, s.keys, s.kv_heads)) return;
  const std::int64_t group = s.heads / s.kv_heads;
  Lane k, v, x, d, dk = {}, dv = {};
  load_lane(k, kv_rows.row(at.row) + k_col(s, at.head), s.head_dim);
  load_lane(v, kv_rows.row(at.row) + v_col(s, at.head), s.value_dim);
  for (std::int64_t head = at.head * group; head < (at.head + 1) * group; ++head)
    for (std::int64_t run = 0; run < s.queries.runs(); ++run) {
      const std::int64_t position = s.queries.position(run), first = s.queries.row(run, s.batch, at.batch);
      const std::int64_t begin = s.causal && at.position > position ? at.position - position : 0;
      for (std::int64_t i = begin; i < s.queries.chunk; ++i) {
        if (first_key(s, position + i) > at.position) break;  // and so for all later queries
        load_lane(d, dout.row(first + i) + out_col(s, head), s.value_dim);
        load_lane(x, out.row(first + i) + out_col(s, head), s.value_dim);
        const float mean = dot(d, x);
        load_lane(x, q_rows.row(first + i) + q_col(s, head), s.head_dim);
        const float shift = lse.row(at.batch * s.heads + head)[run * s.queries.chunk + i];
        const Score score = capped(s, dot(x, k) * s.scale);
        const float p = __expf(score.value - shift);
        float factors[kKeys];
        factors_of(s, at.batch, head, position + i, at.position / kKeys * kKeys, factors);
        float factor = factors[0];
#pragma unroll
        for (int n = 1; n < kKeys; ++n)
          if (at.position % kKeys == n) factor = factors[n];
        add(dv, d, p * factor);
        add(dk, x, p * (dot(d, v) * factor - mean) * score.slope * s.scale);
      }
    }
  store_lane(dkv_rows.row(at.row) + k_col(s, at.head), dk, s.head_dim);
  store_lane(dkv_rows.row(at.row) + v_col(s, at.head), dv, s.value_dim);
}

// dsinks[head] −= Σ over queries of exp(sink − lse) · (dout · out); a warp for each head, so that the order is fixed.
template <class T, class G>
__global__ void dsinks_kernel(Shape s, Rows<const T> out, Rows<const float> lse, Rows<const T> dout, const T* sinks,
                              G* dsinks) {
  const std::int64_t head = std::int64_t{blockIdx.x} * kWarpsOfBlock + threadIdx.y;
  if (head >= s.heads) return;
  const float sink = widened(sinks[head]);
  float sum = 0;
  Lane d, x;
  for (std::int64_t sample = 0; sample < s.batch; ++sample)
    for (std::int64_t run = 0; run < s.queries.runs(); ++run)
      for (std::int64_t i = 0; i < s.queries.chunk; ++i) {
        const std::int64_t row = s.queries.row(run, s.batch, sample) + i;
        load_lane(d, dout.row(row) + out_col(s, head), s.value_dim);
        load_lane(x, out.row(row) + out_col(s, head), s.value_dim);
        sum += __expf(sink - lse.row(sample * s.heads + head)[run * s.queries.chunk + i]) * dot(d, x);
      }
  if (threadIdx.x == 0) dsinks[head] = rounded<G>(widened(dsinks[head]) - sum);
}

// Each warp computes a head of a token; its lanes go along the head.
template <class T>
__global__ void merge_kernel(std::int64_t parts, std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                             std::int64_t held, int head_dim, Rows<const T> outs, Rows<const float> lses, Rows<T> out,
                             Rows<float> lse) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarpsOfBlock + threadIdx.y;
  if (index >= batch * tokens * heads) return;
  const std::int64_t head = index % heads, row = index / heads, each = tokens / held, of_part = row / each;
  const std::int64_t sample = of_part % batch, token = of_part / batch * each + row % each;
  const auto lse_of = [&](std::int64_t part) { return lses.row((part * batch + sample) * heads + head)[token]; };
  float top = -INFINITY, total = 0;
  for (std::int64_t part = 0; part < parts; ++part) top = max_or_nan(top, lse_of(part));
  const bool sees_none = top == -INFINITY;
  for (std::int64_t part = 0; part < parts && !sees_none; ++part) total += __expf(lse_of(part) - top);
  const float whole = sees_none ? top : top + logf(total);
  Lane sum = {}, x;
  for (std::int64_t part = 0; part < parts; ++part) {
    const float share = lse_of(part);
    if (share == -INFINITY) continue;
    load_lane(x, outs.row(part * batch * tokens + row) + head * head_dim, head_dim);
    add(sum, x, __expf(share - whole));
  }
  store_lane(out.row(row) + head * head_dim, sum, head_dim);
  if (threadIdx.x == 0) lse.row(sample * heads + head)[token] = whole;
}

template <class T>
__global__ void pack_kernel(std::int64_t rows, std::int64_t begin, std::int64_t cols, Rows<const T> qkv, Rows<T> kv) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y)
    kv.row(row)[col] = qkv.row(row)[begin + col];
}

// `more` is null where there is one dkv.
template <class T>
__global__ void join_kernel(std::int64_t parts, std::int64_t rows, std::int64_t q_cols, std::int64_t kv_cols,
                            Rows<const T> dq, Rows<const T> dkv, Rows<const T> more, Rows<T> dqkv) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= q_cols + kv_cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    float sum = 0;
    if (col < q_cols) {
      for (std::int64_t part = 0; part < parts; ++part) sum += widened(dq.row(part * rows + row)[col]);
    } else {
      sum = widened(dkv.row(row)[col - q_cols]);
      if (more.data != nullptr) sum += widened(more.row(row)[col - q_cols]);
    }
    dqkv.row(row)[col] = rounded<T>(sum);
  }
}

// Each thread has a column of y, whose rows are those of all groups.
template <class T>
__global__ void split_kernel(std::int64_t groups, std::int64_t rows, std::int64_t q, std::int64_t kv, bool is_back,
                             Rows<T> x, Rows<T> y) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t q_part = q / groups, kv_part = kv / groups;
  if (col >= q_part + 2 * kv_part) return;
  // For segments q, k and v: the first column in x, and in a row of y.
  std::int64_t in_x = col, share = q_part;
  if (col >= q_part) {
    const std::int64_t segment = (col - q_part) / kv_part;
    in_x = q + segment * kv + (col - q_part) % kv_part;
    share = kv_part;
  }
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < groups * rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    T& whole = x.row(row % rows)[in_x + row / rows * share];
    T& part = y.row(row)[col];
    if (is_back)
      whole = part;
    else
      part = whole;
  }
}

}  // namespace

void run_kernel(const Attention& work, std::span<const exec::Operand> o, const Stream& stream) {
  if (const std::int64_t widest = std::max(work.head_dim, work.width_of_values()); widest > kDims * kWarp)
    throw runtime_failure("attention kernels are for heads of up to " + std::to_string(kDims * kWarp) + ", not " +
                          std::to_string(widest));
  Shape s{work.batch,
          work.heads,
          work.kv_heads,
          work.seq,
          {work.queries, work.seq},
          {work.keys, work.seq},
          work.kv_apart ? 0 : work.heads * work.head_dim,
          static_cast<int>(work.head_dim),
          static_cast<int>(work.width_of_values()),
          work.causal,
          static_cast<float>(work.score_scale) / std::sqrt(static_cast<float>(work.head_dim)),
          work.first_head.value(),
          work.dropout > 0,
          {},
          work.rules,
          static_cast<float>(work.rules.cap)};
  // (key), (sinks, and in the gradient dsinks) are last
  const std::size_t of_sinks = !work.rules.learns_sink      ? 0
                               : work.pass == Pass::forward ? 1
                                                            : 2,
                    sinks_at = o.size() - of_sinks;
  if (s.drops)
    s.mask = {
        static_cast<const std::int32_t*>(o[sinks_at - 1].data), static_cast<std::uint32_t>(DropoutSite::attention),
        static_cast<std::uint64_t>(std::ceil(work.dropout * 4294967296.0)), static_cast<float>(1 / (1 - work.dropout))};
  const auto blocks = [&](std::int64_t heads, const Parts& parts) {
    return dim3{static_cast<unsigned>(ceil_div(work.batch * heads * parts.tokens(), kWarpsOfBlock)), 1, 1};
  };
  const dim3 block{kWarp, kWarpsOfBlock, 1};
  const std::size_t kv_at = work.kv_apart ? 1 : 0, out_at = kv_at + 1, dq_at = out_at + 3;
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    const Rows<const T> q = rows_of<const T>(o[0]), kv = rows_of<const T>(o[kv_at]);
    const T* const sinks = of_sinks > 0 ? static_cast<const T*>(o[sinks_at].data) : nullptr;
    if (work.pass == Pass::forward)
      return launch(stream, blocks(work.heads, s.queries), block, forward_kernel<T>, s, q, kv, rows_of<T>(o[out_at]),
                    rows_of<float>(o[out_at + 1]), sinks);
    const Rows<const T> out = rows_of<const T>(o[out_at]), dout = rows_of<const T>(o[out_at + 2]);
    const Rows<const float> lse = rows_of<const float>(o[out_at + 1]);
    launch(stream, blocks(work.heads, s.queries), block, dq_kernel<T>, s, q, kv, out, lse, dout, rows_of<T>(o[dq_at]));
    launch(stream, blocks(work.kv_heads, s.keys), block, dkv_kernel<T>, s, q, kv, out, lse, dout,
           rows_of<T>(o[dq_at + kv_at]));
    if (of_sinks > 0)
      with_device_type(o[sinks_at + 1].dtype, [&](auto gradient) {
        using G = decltype(gradient);
        launch(stream, dim3{static_cast<unsigned>(ceil_div(work.heads, kWarpsOfBlock)), 1, 1}, block,
               dsinks_kernel<T, G>, s, out, lse, dout, sinks, static_cast<G*>(o[sinks_at + 1].data));
      });
  });
}

void run_kernel(const AttentionMerge& work, std::span<const exec::Operand> o, const Stream& stream) {
  if (work.head_dim > kDims * kWarp)
    throw runtime_failure("attention kernels are for heads of up to " + std::to_string(kDims * kWarp) + ", not " +
                          std::to_string(work.head_dim));
  const dim3 grid{static_cast<unsigned>(ceil_div(work.batch * work.tokens * work.heads, kWarpsOfBlock)), 1, 1};
  const dim3 block{kWarp, kWarpsOfBlock, 1};
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, grid, block, merge_kernel<T>, work.parts, work.batch, work.heads, work.tokens, work.held,
           static_cast<int>(work.head_dim), rows_of<const T>(o[0]), rows_of<const float>(o[1]), rows_of<T>(o[2]),
           rows_of<float>(o[3]));
  });
}

void run_kernel(const PackKv& work, std::span<const exec::Operand> o, const Stream& stream) {
  const Tiling t = tile(work.rows, work.kv_cols());
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, t.grid, t.block, pack_kernel<T>, work.rows, work.q_cols(), work.kv_cols(), rows_of<const T>(o[0]),
           rows_of<T>(o[1]));
  });
}

void run_kernel(const JoinQkv& work, std::span<const exec::Operand> o, const Stream& stream) {
  const Tiling t = tile(work.rows, work.q_cols() + work.kv_cols());
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, t.grid, t.block, join_kernel<T>, work.parts, work.rows, work.q_cols(), work.kv_cols(),
           rows_of<const T>(o[0]), rows_of<const T>(o[1]), work.sums == 2 ? rows_of<const T>(o[2]) : Rows<const T>{},
           rows_of<T>(o.back()));
  });
}

void run_kernel(const SplitHeads& work, std::span<const exec::Operand> o, const Stream& stream) {
  const bool is_back = work.pass == Pass::backward;
  const exec::Operand &x = o[is_back ? 1 : 0], &y = o[is_back ? 0 : 1];
  const Tiling t = tile(work.groups * work.rows, work.cols() / work.groups);
  with_device_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, t.grid, t.block, split_kernel<T>, work.groups, work.rows, work.heads * work.head_dim,
           work.kv_heads * work.head_dim, is_back, rows_of<T>(x), rows_of<T>(y));
  });
}

}  // namespace stretto::cuda
