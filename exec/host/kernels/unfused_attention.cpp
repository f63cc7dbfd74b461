// The products of unfused attention, one BLAS call for each head of each sample, and the softmax between them.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "exec/host/kernels/blas.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

template <class T>
struct Matrix {
  T* data;
  std::int64_t ld;
};

// One head's cut of each operand.
template <class T>
class Head {
 public:
  Head(const AttentionProduct& work, std::span<const Operand> operands, std::int64_t sample, std::int64_t head)
      : work_(work), operands_(operands), sample_(sample), head_(head) {}

  Matrix<T> scores(std::size_t i) const {
    return {row_of<T>(operands_[i], (sample_ * work_.heads + head_) * work_.seq), operands_[i].ld};
  }
  // Columns of q, or of a matrix that has a head's columns where q has them.
  Matrix<T> queries(std::size_t i) const { return columns(i, head_ * work_.head_dim); }
  // Columns of dk or dv.
  Matrix<T> keys(std::size_t i) const { return columns(i, kv_head() * work_.head_dim); }
  Matrix<T> k(std::size_t i) const { return columns(i, (work_.heads + kv_head()) * work_.head_dim); }
  Matrix<T> v(std::size_t i) const { return columns(i, (work_.heads + work_.kv_heads + kv_head()) * work_.head_dim); }

 private:
  std::int64_t kv_head() const { return head_ / (work_.heads / work_.kv_heads); }
  Matrix<T> columns(std::size_t i, std::int64_t first) const {
    return {row_of<T>(operands_[i], sample_ * work_.seq) + first, operands_[i].ld};
  }

  const AttentionProduct& work_;
  std::span<const Operand> operands_;
  std::int64_t sample_, head_;
};

template <class T>
void product(const AttentionProduct& work, std::span<const Operand> operands) {
  const std::int64_t s = work.seq, d = work.head_dim, group = work.heads / work.kv_heads;
  const T scale = T(1) / std::sqrt(static_cast<T>(d));
  // to_scores: [s,s] of two matrices of rows; [s,d] of scores and rows; [s,d] of transposed scores, summed over the
  // heads of a group.
  const auto to_scores = [&](T factor, Matrix<T> a, Matrix<T> b, Matrix<T> c) {
    blas_gemm(false, true, s, s, d, factor, a.data, a.ld, b.data, b.ld, T(0), c.data, c.ld);
  };
  const auto to_queries = [&](T factor, Matrix<T> a, Matrix<T> b, Matrix<T> c) {
    blas_gemm(false, false, s, d, s, factor, a.data, a.ld, b.data, b.ld, T(0), c.data, c.ld);
  };
  const auto to_keys = [&](T factor, Matrix<T> a, Matrix<T> b, Matrix<T> c, bool is_first) {
    blas_gemm(true, false, s, d, s, factor, a.data, a.ld, b.data, b.ld, is_first ? T(0) : T(1), c.data, c.ld);
  };
  for (std::int64_t sample = 0; sample < work.batch; ++sample)
    for (std::int64_t head = 0; head < work.heads; ++head) {
      const Head<T> of(work, operands, sample, head);
      switch (work.product) {
        case AttentionFactor::scores:
          to_scores(scale, of.queries(0), of.k(0), of.scores(1));
          break;
        case AttentionFactor::context:
          to_queries(T(1), of.scores(0), of.v(1), of.queries(2));
          break;
        case AttentionFactor::dv:
          to_keys(T(1), of.scores(0), of.queries(1), of.keys(2), head % group == 0);
          break;
        case AttentionFactor::dp:
          to_scores(T(1), of.queries(0), of.v(1), of.scores(2));
          break;
        case AttentionFactor::dq:
          to_queries(scale, of.scores(0), of.k(1), of.queries(2));
          break;
        case AttentionFactor::dk:
          to_keys(scale, of.scores(0), of.queries(1), of.keys(2), head % group == 0);
          break;
      }
    }
}

template <class T>
void softmax(const Softmax& work, std::span<const Operand> operands) {
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const std::int64_t seen = work.seen(row);
    if (work.pass == Pass::forward) {
      const std::int64_t first =
          work.by_document ? row_of<std::int32_t>(operands[2], row / (work.heads * work.cols))[row % work.cols] : 0;
      T *begin = row_of<T>(operands[1], row), *p = begin + first;
      std::copy_n(row_of<T>(operands[0], row) + first, seen - first, p);
      const T sum = row_exp(p, seen - first, row_max(p, seen - first));
      row_scale(p, seen - first, T(1) / sum);
      std::fill(begin, p, T(0));
      std::fill(begin + seen, begin + work.cols, T(0));
      continue;
    }
    const T* p = row_of<T>(operands[0], row);
    T* gradient = row_of<T>(operands[1], row);
    Simd<T> dots = Simd<T>::Zero();
    for_simd<T>(seen,
                [&](std::int64_t i, std::int64_t count) { dots += load(p + i, count) * load(gradient + i, count); });
    const T mean = dots.sum();
    for_simd<T>(seen, [&](std::int64_t i, std::int64_t count) {
      store<T>(gradient + i, count, load(p + i, count) * (load(gradient + i, count) - mean));
    });
    std::fill(gradient + seen, gradient + work.cols, T(0));
  }
}

}  // namespace

void run_kernel(const AttentionProduct& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.product == AttentionFactor::scores ? 2u : 3u));
  assert(work.kv_heads > 0 && work.heads % work.kv_heads == 0);
  assert(have_one_dtype(operands) && operands.back().mode == AccessMode::write);
  with_compute_type(operands[0].dtype, [&](auto type) { product<decltype(type)>(work, operands); });
}

void run_kernel(const Softmax& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.by_document && work.pass == Pass::forward ? 3u : 2u));
  assert(have_one_dtype(operands.first(2)));
  assert(has_shape(operands[0], work.rows, work.cols) && has_shape(operands[1], work.rows, work.cols));
  with_compute_type(operands[0].dtype, [&](auto type) { softmax<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
