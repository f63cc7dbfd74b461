// The products of unfused attention without tensor cores, in f32, and the softmax between them.
#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

// Each block has a tile of one head's result, each thread kEach × kEach elements of it.
constexpr int kTile = 64, kDepth = 16, kEach = 4, kSide = kTile / kEach;

// The places of the heads of a matrix: head `h` of sample `b` begins at b · sample + h / group · head, and its element
// (i, j) is at i · row + j · col. A transposed matrix has row and col exchanged.
template <class T>
struct Heads {
  T* data;
  std::int64_t sample, head, group, row, col;
  __device__ T* of(std::int64_t b, std::int64_t h) const { return data + b * sample + h / group * head; }
};

struct Shape {
  std::int64_t heads;   // heads of the result
  std::int64_t summed;  // heads of A and B that add up to one head of the result
  std::int64_t rows, cols, depth;
  std::int64_t row_tiles, col_tiles;
  float scale;
};

// C = scale · Σ A · B over the summed heads.
template <class T>
__global__ void product_kernel(Shape s, Heads<const T> a, Heads<const T> b, Heads<T> c) {
  __shared__ float of_a[kDepth][kTile + 1], of_b[kDepth][kTile + 1];
  const std::int64_t tile = blockIdx.x % (s.row_tiles * s.col_tiles), at = blockIdx.x / (s.row_tiles * s.col_tiles);
  const std::int64_t sample = at / s.heads, head = at % s.heads;
  const std::int64_t first_row = tile / s.col_tiles * kTile, first_col = tile % s.col_tiles * kTile;
  const int thread = static_cast<int>(threadIdx.x), x = thread % kSide, y = thread / kSide;
  float sum[kEach][kEach] = {};
  for (std::int64_t summed = head * s.summed; summed < (head + 1) * s.summed; ++summed) {
    const T *from_a = a.of(sample, summed), *from_b = b.of(sample, summed);
    for (std::int64_t begin = 0; begin < s.depth; begin += kDepth) {
      __syncthreads();  // threads may still be reading the previous part
      for (int i = thread; i < kTile * kDepth; i += kSide * kSide) {
        // Neighbouring threads read neighbouring elements.
        const int ka = a.col == 1 ? i % kDepth : i / kTile, ma = a.col == 1 ? i / kDepth : i % kTile;
        const int kb = b.col == 1 ? i / kTile : i % kDepth, nb = b.col == 1 ? i % kTile : i / kDepth;
        of_a[ka][ma] = first_row + ma < s.rows && begin + ka < s.depth
                           ? widened(from_a[(first_row + ma) * a.row + (begin + ka) * a.col])
                           : 0.0f;
        of_b[kb][nb] = first_col + nb < s.cols && begin + kb < s.depth
                           ? widened(from_b[(begin + kb) * b.row + (first_col + nb) * b.col])
                           : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sum[i][j] += of_a[k][y + i * kSide] * of_b[k][x + j * kSide];
        }
      }
    }
  }
  T* to = c.of(sample, head);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t row = first_row + y + i * kSide, col = first_col + x + j * kSide;
      if (row < s.rows && col < s.cols) to[row * c.row + col] = rounded<T>(s.scale * sum[i][j]);
    }
  }
}

// Operands of one product as heads of matrices.
template <class T>
class Operands {
 public:
  Operands(const AttentionProduct& work, std::span<const exec::Operand> operands) : w_(work), operands_(operands) {}

  template <class U = const T>
  Heads<U> scores(std::size_t i) const {
    const std::int64_t of_head = w_.seq * ld(i);
    return {static_cast<U*>(operands_[i].data), w_.heads * of_head, of_head, 1, ld(i), 1};
  }
  template <class U = const T>
  Heads<U> queries(std::size_t i) const {
    return columns<U>(i, 0, 1);
  }
  Heads<T> keys(std::size_t i) const { return columns<T>(i, 0, 1); }  // dk and dv, one key head after the other
  Heads<const T> k(std::size_t i) const { return columns<const T>(i, w_.heads, group()); }
  Heads<const T> v(std::size_t i) const { return columns<const T>(i, w_.heads + w_.kv_heads, group()); }
  std::int64_t group() const { return w_.heads / w_.kv_heads; }

 private:
  std::int64_t ld(std::size_t i) const { return operands_[i].rows == 1 ? operands_[i].cols : operands_[i].ld; }
  template <class U>
  Heads<U> columns(std::size_t i, std::int64_t first_head, std::int64_t group) const {
    return {
        static_cast<U*>(operands_[i].data) + first_head * w_.head_dim, w_.seq * ld(i), w_.head_dim, group, ld(i), 1};
  }

  const AttentionProduct& w_;
  std::span<const exec::Operand> operands_;
};

template <class T>
Heads<T> turned(Heads<T> heads) {
  std::swap(heads.row, heads.col);
  return heads;
}

template <class T>
__global__ void softmax_kernel(bool causal, std::int64_t cols, Rows<const T> scores, Rows<T> probabilities) {
  const std::int64_t row = blockIdx.x, seen = causal ? row % cols + 1 : cols;
  const T* from = scores.row(row);
  T* to = probabilities.row(row);
  float top = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < seen; i += blockDim.x) top = max_or_nan(top, widened(from[i]));
  top = block_max(top);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < seen; i += blockDim.x) sum += __expf(widened(from[i]) - top);
  const float inverse = 1.0f / block_sum(sum);
  for (std::int64_t i = threadIdx.x; i < cols; i += blockDim.x)
    to[i] = rounded<T>(i < seen ? __expf(widened(from[i]) - top) * inverse : 0.0f);
}

template <class T>
__global__ void softmax_gradient_kernel(bool causal, std::int64_t cols, Rows<const T> probabilities, Rows<T> gradient) {
  const std::int64_t row = blockIdx.x, seen = causal ? row % cols + 1 : cols;
  const T* p = probabilities.row(row);
  T* g = gradient.row(row);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < seen; i += blockDim.x) sum += widened(p[i]) * widened(g[i]);
  const float mean = block_sum(sum);
  for (std::int64_t i = threadIdx.x; i < cols; i += blockDim.x)
    g[i] = rounded<T>(i < seen ? widened(p[i]) * (widened(g[i]) - mean) : 0.0f);
}

}  // namespace

void run_kernel(const AttentionProduct& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const std::int64_t s = work.seq, d = work.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    const Operands<T> of(work, operands);
    const auto start = [&](std::int64_t heads, std::int64_t cols, std::int64_t depth, float factor, Heads<const T> a,
                           Heads<const T> b, Heads<T> c) {
      const Shape shape{heads, work.heads / heads, s, cols, depth, ceil_div(s, kTile), ceil_div(cols, kTile), factor};
      launch(stream, {static_cast<unsigned>(shape.row_tiles * shape.col_tiles * work.batch * heads), 1, 1},
             {kSide * kSide, 1, 1}, product_kernel<T>, shape, a, b, c);
    };
    switch (work.product) {
      case AttentionFactor::scores:
        return start(work.heads, s, d, scale, of.queries(0), turned(of.k(0)), of.template scores<T>(1));
      case AttentionFactor::context:
        return start(work.heads, d, s, 1, of.scores(0), of.v(1), of.template queries<T>(2));
      case AttentionFactor::dv:
        return start(work.kv_heads, d, s, 1, turned(of.scores(0)), of.queries(1), of.keys(2));
      case AttentionFactor::dp:
        return start(work.heads, s, d, 1, of.queries(0), turned(of.v(1)), of.template scores<T>(2));
      case AttentionFactor::dq:
        return start(work.heads, d, s, scale, of.scores(0), of.k(1), of.template queries<T>(2));
      case AttentionFactor::dk:
        return start(work.kv_heads, d, s, scale, turned(of.scores(0)), of.queries(1), of.keys(2));
    }
  });
}

void run_kernel(const Softmax& work, std::span<const exec::Operand> operands, const Stream& stream) {
  unsigned threads = kWarp;
  while (threads < kThreads && threads < work.cols) threads *= 2;
  const dim3 grid{static_cast<unsigned>(work.rows), 1, 1}, block{threads, 1, 1};
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = work.pass == Pass::forward ? softmax_kernel<T> : softmax_gradient_kernel<T>;
    launch(stream, grid, block, kernel, work.causal, work.cols, rows_of<const T>(operands[0]), rows_of<T>(operands[1]));
  });
}

}  // namespace stretto::cuda
