// The algorithm, per (batch, head), in blocks of kQueryRows query rows [i0, i1) against keys [0, e), e = i1 when
// causal and seq otherwise, scores in scratch that stays in cache:
//   forward: S = scale·Q·Kᵀ, P = softmax(S), O = P·V                                   2 matmuls
//   dgrad:   S again, P = exp(S − lse), dP = dO·Vᵀ, dS = scale·P∘(dP − rowsum(dO∘O)),
//            dQ = dS·K, dK += dSᵀ·Q, dV += Pᵀ·dO                                        5 matmuls
// Dropout multiplies P by D before it meets V, and dP by D: rowsum(dP∘P) is rowsum(dO∘O) all the same.
// Each matmul of a block is 2·(i1 − i0)·e·head_dim FLOPs, so a causal head executes about (seq + kQueryRows) / (2·seq)
// of the full square, where the causal convention of model_flops() counts one half. Masked scores inside the diagonal
// block are computed and then zeroed. The lse formulation of the gradient is FlashAttention-2's (arXiv 2307.08691).
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <optional>

#include "exec/host/kernels/blas.hpp"
#include "exec/host/kernels/dropout_mask.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {
namespace {

constexpr std::int64_t kQueryRows = kAttentionQueryBlock;

// One head's columns of a [T, …] operand from the first token of its sequence on.
template <class T>
struct HeadView {
  T* data;
  std::int64_t ld;
  T* row(std::int64_t token) const { return data + token * ld; }
};

template <class T>
HeadView<T> head_view(const Operand& operand, std::int64_t first_row, std::int64_t first_col) {
  return {row_of<T>(operand, first_row) + first_col, operand.ld};
}

// Rows of scores start on a cache line.
template <class T>
std::int64_t score_ld(std::int64_t seq) {
  return (seq + kSimdWidth<T> - 1) / kSimdWidth<T> * kSimdWidth<T>;
}

template <class T>
struct HeadParts {
  HeadView<T> q, k, v;
};

// Dropout of one head of one sample; nothing where there is none.
struct HeadDropout {
  const DropoutMask* mask = nullptr;
  std::int64_t sample = 0, first_row = 0;
  template <class T>
  Simd<T> factors(std::int64_t query, std::int64_t key) const {
    return mask->factors<T>(sample, first_row + query, key);
  }
};

template <class T>
void forward_head(const Attention& work, HeadParts<T> in, HeadView<T> out, T* lse, const HeadDropout& dropout) {
  const auto [q, k, v] = in;
  const std::int64_t d = work.head_dim, ld = score_ld<T>(work.seq);
  const T scale = T(1) / std::sqrt(static_cast<T>(d));
  T* scores = thread_scratch<T>(kQueryRows * ld);
  for (std::int64_t begin = 0; begin < work.seq; begin += kQueryRows) {
    const std::int64_t rows = std::min(kQueryRows, work.seq - begin);
    const std::int64_t keys = work.causal ? begin + rows : work.seq;
    blas_gemm(false, true, rows, keys, d, scale, q.row(begin), q.ld, k.data, k.ld, T(0), scores, ld);
    T inverse_sum[kQueryRows];
    for (std::int64_t row = 0; row < rows; ++row) {
      T* score = scores + row * ld;
      const std::int64_t seen = work.causal ? begin + row + 1 : work.seq;
      const T top = row_max(score, seen);
      const T sum = row_exp(score, seen, top);
      if (dropout.mask)
        for_simd<T>(seen, [&](std::int64_t i, std::int64_t count) {
          store<T>(score + i, count, load(score + i, count) * dropout.factors<T>(begin + row, i));
        });
      std::fill(score + seen, score + keys, T(0));
      lse[begin + row] = top + std::log(sum);
      inverse_sum[row] = T(1) / sum;
    }
    blas_gemm(false, false, rows, d, keys, T(1), scores, ld, v.data, v.ld, T(0), out.row(begin), out.ld);
    // Normalised here and not in the scores: head_dim columns instead of seq.
    for (std::int64_t row = 0; row < rows; ++row) row_scale(out.row(begin + row), d, inverse_sum[row]);
  }
}

template <class T>
T row_dot(const T* a, const T* b, std::int64_t n) {
  Simd<T> sum = Simd<T>::Zero();
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) { sum += load(a + i, count) * load(b + i, count); });
  return sum.sum();
}

// `adds_to_kv`: dk and dv already hold what other query heads of the group gave.
template <class T>
void dgrad_head(const Attention& work, HeadParts<T> in, HeadView<T> out, const T* lse, HeadView<T> dout,
                HeadParts<T> grad, bool adds_to_kv, const HeadDropout& dropout) {
  const auto [q, k, v] = in;
  const std::int64_t d = work.head_dim, ld = score_ld<T>(work.seq);
  const T scale = T(1) / std::sqrt(static_cast<T>(d));
  T* probabilities = thread_scratch<T>(2 * kQueryRows * ld);
  T* dscores = probabilities + kQueryRows * ld;
  const std::int64_t blocks = (work.seq + kQueryRows - 1) / kQueryRows;
  // Last block first: it sees every key, so its dK and dV overwrite all rows and the other blocks add. So does every
  // block of the query heads that share a kv head with one before.
  for (std::int64_t block = blocks - 1; block >= 0; --block) {
    const std::int64_t begin = block * kQueryRows;
    const std::int64_t rows = std::min(kQueryRows, work.seq - begin);
    const std::int64_t keys = work.causal ? begin + rows : work.seq;
    const T beta = block == blocks - 1 && !adds_to_kv ? T(0) : T(1);
    blas_gemm(false, true, rows, keys, d, scale, q.row(begin), q.ld, k.data, k.ld, T(0), probabilities, ld);
    blas_gemm(false, true, rows, keys, d, T(1), dout.row(begin), dout.ld, v.data, v.ld, T(0), dscores, ld);
    for (std::int64_t row = 0; row < rows; ++row) {
      T* p = probabilities + row * ld;
      T* ds = dscores + row * ld;
      const std::int64_t seen = work.causal ? begin + row + 1 : work.seq;
      const T shift = lse[begin + row];
      const T mean = row_dot(out.row(begin + row), dout.row(begin + row), d);
      for_simd<T>(seen, [&](std::int64_t i, std::int64_t count) {
        const Simd<T> y = (load(p + i, count, shift) - shift).exp();
        Simd<T> dp = load(ds + i, count), dropped = y;
        if (dropout.mask) {
          const Simd<T> factors = dropout.factors<T>(begin + row, i);
          dp *= factors;
          dropped *= factors;
        }
        store<T>(p + i, count, dropped);
        store<T>(ds + i, count, y * (dp - mean) * scale);
      });
      std::fill(p + seen, p + keys, T(0));
      std::fill(ds + seen, ds + keys, T(0));
    }
    blas_gemm(false, false, rows, d, keys, T(1), dscores, ld, k.data, k.ld, T(0), grad.q.row(begin), grad.q.ld);
    blas_gemm(true, false, keys, d, rows, T(1), dscores, ld, q.row(begin), q.ld, beta, grad.k.data, grad.k.ld);
    blas_gemm(true, false, keys, d, rows, T(1), probabilities, ld, dout.row(begin), dout.ld, beta, grad.v.data,
              grad.v.ld);
  }
}

template <class T>
void attention(const Attention& work, std::span<const Operand> operands) {
  std::optional<DropoutMask> mask;
  if (work.dropout > 0) mask.emplace(operands.back(), work.dropout, DropoutSite::attention);
  const std::int64_t group = work.heads / work.kv_heads;  // query heads of a kv head
  const std::int64_t k_begin = work.heads * work.head_dim, v_begin = k_begin + work.kv_heads * work.head_dim;
  for (std::int64_t batch = 0; batch < work.batch; ++batch) {
    const std::int64_t row = batch * work.seq;
    for (std::int64_t head = 0; head < work.heads; ++head) {
      const std::int64_t col = head * work.head_dim, kv_col = head / group * work.head_dim;
      const auto parts_of = [&](const Operand& qkv) -> HeadParts<T> {
        return {head_view<T>(qkv, row, col), head_view<T>(qkv, row, k_begin + kv_col),
                head_view<T>(qkv, row, v_begin + kv_col)};
      };
      const HeadParts<T> in = parts_of(operands[0]);
      const HeadView<T> out = head_view<T>(operands[1], row, col);
      T* lse = row_of<T>(operands[2], batch * work.heads + head);
      const HeadDropout dropout{mask ? &*mask : nullptr, batch, (work.first_head.value() + head) * work.seq};
      if (work.pass == Pass::forward) {
        forward_head(work, in, out, lse, dropout);
      } else {
        dgrad_head<T>(work, in, out, lse, head_view<T>(operands[3], row, col), parts_of(operands[4]), head % group != 0,
                      dropout);
      }
    }
  }
}

}  // namespace

void run_kernel(const Attention& work, std::span<const Operand> operands) {
  assert(work.pass != Pass::wgrad);
  assert(operands.size() == (work.pass == Pass::forward ? 3u : 5u) + (work.dropout > 0));
  assert(work.kv_heads > 0 && work.heads % work.kv_heads == 0);
  const std::int64_t tokens = work.batch * work.seq, hidden = work.heads * work.head_dim;
  const std::int64_t qkv = hidden + 2 * work.kv_heads * work.head_dim;
  assert(has_shape(operands[0], tokens, qkv) && has_shape(operands[1], tokens, hidden));
  assert(has_shape(operands[2], work.batch * work.heads, work.seq));
  assert(have_one_dtype(operands.first(work.pass == Pass::forward ? 3 : 5)));
  if (work.pass == Pass::dgrad) {
    assert(has_shape(operands[3], tokens, hidden) && has_shape(operands[4], tokens, qkv));
    assert(operands[4].mode == AccessMode::write);
  }
  static_cast<void>(tokens), static_cast<void>(hidden), static_cast<void>(qkv);
  with_compute_type(operands[0].dtype, [&](auto type) { attention<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
