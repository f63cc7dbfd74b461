// The algorithm, per (batch, head): blocks of kQueryRows query rows [i0, i1) of a run of consecutive positions meet the
// runs of keys that any of these queries sees, each up to the block's last position when causal. Scores are in scratch
// that stays in cache. For a whole sequence there is one run: keys [0, e), e = i1 when causal and seq otherwise:
//   forward: S = scale·Q·Kᵀ, P = softmax(S), O = P·V                                   2 matmuls
//   dgrad:   S again, P = exp(S − lse), dP = dO·Vᵀ, dS = scale·P∘(dP − rowsum(dO∘O)),
//            dQ = dS·K, dK += dSᵀ·Q, dV += Pᵀ·dO                                        5 matmuls
// With documents, windows or chunks, runs of keys begin at the first key that the block's first query sees, and scores
// of keys that a query does not see are zeroed too. A sink is one more score in the sum, of no key: its gradient is
// −Σ exp(b − lse)·rowsum(dO∘O). With a cap dS is multiplied by the slope of tanh, 1 − (s/cap)². Dropout multiplies P by
// D before the product with V, and dP by D: rowsum(dP∘P) still is rowsum(dO∘O). Each matmul of a block is 2·(i1 −
// i0)·e·head_dim FLOPs, or value_dim, so a causal head executes about (seq + kQueryRows) / (2·seq) of the full square,
// where the causal convention of model_flops() counts one half. Masked scores inside the diagonal block are computed
// and then zeroed. The lse formulation of the gradient is FlashAttention-2's (arXiv 2307.08691).
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "exec/host/kernels/blas.hpp"
#include "exec/host/kernels/dropout_mask.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {
namespace {

constexpr std::int64_t kQueryRows = kAttentionQueryBlock;

// One head's columns of a [T, …] operand, from the first token of its sequence on.
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

// The key columns in the scores of one block of queries: those of every run that some query of the block sees, run
// after run.
struct Columns {
  struct Piece {
    std::int64_t row = 0, position = 0, col = 0, length = 0;
    // Returns how many of the run's keys lie before the end of what a query at `position_of_query` sees.
    std::int64_t seen(bool causal, std::int64_t position_of_query) const {
      return causal ? std::clamp<std::int64_t>(position_of_query + 1 - position, 0, length) : length;
    }
    // Returns how many of the `seen` keys lie before the first one that a query sees.
    std::int64_t other(std::int64_t first, std::int64_t seen) const {
      return std::clamp<std::int64_t>(first - position, 0, seen);
    }
  };
  std::vector<Piece> pieces;
  std::int64_t count = 0;

  // Finds the columns for queries at positions up to `last` that see no key before `first`.
  void find(const std::vector<SequenceRun>& keys, bool causal, std::int64_t first, std::int64_t last) {
    pieces.clear();
    count = 0;
    for (const SequenceRun& run : keys) {
      const std::int64_t end = causal ? std::clamp<std::int64_t>(last + 1 - run.position, 0, run.length) : run.length,
                         begin = std::clamp<std::int64_t>(first - run.position, 0, end);
      if (begin == end) continue;
      pieces.push_back({run.row + begin, run.position + begin, count, end - begin});
      count += end - begin;
    }
  }
};

// One sequence of one head, with its runs of queries and keys in the operands.
struct HeadShape {
  std::vector<SequenceRun> queries, keys;
  std::int64_t head_dim = 0, value_dim = 0, key_tokens = 0;
  bool causal = true;
  double score_scale = 1;
  const std::int32_t* documents = nullptr;  // [position] first position of its document; null: one document
  ScoreRules rules = {};

  // Returns the position of the first key that a query sees.
  std::int64_t first_of(std::int64_t position) const {
    const std::int64_t first = rules.first_key(position);
    return documents ? std::max<std::int64_t>(first, documents[position]) : first;
  }
  bool hides_keys() const { return documents != nullptr || rules.limits_keys(); }
  template <class T>
  T scale() const {
    return static_cast<T>(score_scale) / std::sqrt(static_cast<T>(head_dim));
  }

  // Calls fn(row, its position, rows, column of its statistics) for every block of queries, the last first.
  template <class Fn>
  void for_blocks(Fn fn) const {
    std::int64_t column = 0;
    for (const SequenceRun& run : queries) column += run.length;
    for (std::size_t i = queries.size(); i-- > 0;) {
      const SequenceRun& run = queries[i];
      column -= run.length;
      const std::int64_t blocks = (run.length + kQueryRows - 1) / kQueryRows;
      for (std::int64_t block = blocks - 1; block >= 0; --block) {
        const std::int64_t begin = block * kQueryRows;
        fn(run.row + begin, run.position + begin, std::min(kQueryRows, run.length - begin), column + begin);
      }
    }
  }
};

template <class T>
T max_or_nan(T a, T b) {
  return b > a || std::isnan(b) ? b : a;
}

template <class T>
struct HeadParts {
  HeadView<T> q, k, v;
};

// Dropout of one head of one sample; null mask without dropout.
struct HeadDropout {
  const DropoutMask* mask = nullptr;
  std::int64_t sample = 0, first_row = 0;
  template <class T>
  Simd<T> factors(std::int64_t query, std::int64_t key) const {
    return mask->factors<T>(sample, first_row + query, key);
  }
};

// `sink`: the score of no key, where the rules have one.
template <class T>
void forward_head(const HeadShape& shape, HeadParts<T> in, HeadView<T> out, T* lse, const HeadDropout& dropout,
                  T sink) {
  const auto [q, k, v] = in;
  const std::int64_t d = shape.head_dim, width = shape.value_dim, ld = score_ld<T>(shape.key_tokens);
  const T scale = shape.scale<T>();
  T* scores = thread_scratch<T>(kQueryRows * ld);
  Columns keys;
  shape.for_blocks([&](std::int64_t begin, std::int64_t position, std::int64_t rows, std::int64_t column) {
    keys.find(shape.keys, shape.causal, shape.first_of(position), position + rows - 1);
    for (const Columns::Piece& p : keys.pieces)
      blas_gemm(false, true, rows, p.length, d, scale, q.row(begin), q.ld, k.row(p.row), k.ld, T(0), scores + p.col,
                ld);
    if (const T cap = static_cast<T>(shape.rules.cap); cap > 0)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < keys.count; ++i)
          scores[row * ld + i] = cap * std::tanh(scores[row * ld + i] / cap);
    T inverse_sum[kQueryRows];
    for (std::int64_t row = 0; row < rows; ++row) {
      T* score = scores + row * ld;
      T top = shape.rules.has_sink ? sink : -std::numeric_limits<T>::infinity(), sum = 0;
      const std::int64_t document = shape.first_of(position + row);
      for (const Columns::Piece& p : keys.pieces) {
        const std::int64_t seen = p.seen(shape.causal, position + row), other = p.other(document, seen);
        if (seen > other) top = max_or_nan(top, row_max(score + p.col + other, seen - other));
      }
      for (const Columns::Piece& p : keys.pieces) {
        const std::int64_t seen = p.seen(shape.causal, position + row), other = p.other(document, seen);
        T* const from = score + p.col + other;
        std::fill(score + p.col, from, T(0));
        if (seen > other) sum += row_exp(from, seen - other, top);
        if (dropout.mask)
          for_simd<T>(seen - other, [&](std::int64_t i, std::int64_t count) {
            store<T>(from + i, count,
                     load(from + i, count) * dropout.factors<T>(position + row, p.position + other + i));
          });
        std::fill(score + p.col + seen, score + p.col + p.length, T(0));
      }
      if (shape.rules.has_sink) sum += std::exp(sink - top);
      lse[column + row] = sum == 0 ? -std::numeric_limits<T>::infinity() : top + std::log(sum);
      inverse_sum[row] = sum == 0 ? T(0) : T(1) / sum;
    }
    for (const Columns::Piece& p : keys.pieces)
      blas_gemm(false, false, rows, width, p.length, T(1), scores + p.col, ld, v.row(p.row), v.ld,
                p.col == 0 ? T(0) : T(1), out.row(begin), out.ld);
    // The output is normalised and not the scores: value_dim columns instead of seq.
    for (std::int64_t row = 0; row < rows; ++row) {
      if (keys.pieces.empty())
        std::fill_n(out.row(begin + row), width, T(0));
      else
        row_scale(out.row(begin + row), width, inverse_sum[row]);
    }
  });
}

template <class T>
T row_dot(const T* a, const T* b, std::int64_t n) {
  Simd<T> sum = Simd<T>::Zero();
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) { sum += load(a + i, count) * load(b + i, count); });
  return sum.sum();
}

// `adds_to_kv`: dk and dv already hold the sums of other query heads of the group. `dsink`: null where nothing learns.
template <class T>
void dgrad_head(const HeadShape& shape, HeadParts<T> in, HeadView<T> out, const T* lse, HeadView<T> dout,
                HeadParts<T> grad, bool adds_to_kv, const HeadDropout& dropout, T sink, T* dsink) {
  const auto [q, k, v] = in;
  const std::int64_t d = shape.head_dim, width = shape.value_dim, ld = score_ld<T>(shape.key_tokens);
  const T scale = shape.scale<T>();
  T* probabilities = thread_scratch<T>(2 * kQueryRows * ld);
  T* dscores = probabilities + kQueryRows * ld;
  // The last block of a run of queries comes first: it sees every key that any block sees, so its dK and dV overwrite
  // all rows and the other blocks add. Blocks of later query heads that share the kv head also add. Where there are
  // more runs or documents, the last block does not see all keys.
  bool adds = adds_to_kv;
  if (!adds && (shape.queries.size() > 1 || shape.keys.size() > 1 || shape.hides_keys())) {
    for (const SequenceRun& run : shape.keys)
      for (std::int64_t row = run.row; row < run.row + run.length; ++row) {
        std::fill_n(grad.k.row(row), d, T(0));
        std::fill_n(grad.v.row(row), width, T(0));
      }
    adds = true;
  }
  Columns keys;
  shape.for_blocks([&](std::int64_t begin, std::int64_t position, std::int64_t rows, std::int64_t column) {
    keys.find(shape.keys, shape.causal, shape.first_of(position), position + rows - 1);
    const T beta = adds ? T(1) : T(0);
    for (const Columns::Piece& p : keys.pieces) {
      blas_gemm(false, true, rows, p.length, d, scale, q.row(begin), q.ld, k.row(p.row), k.ld, T(0),
                probabilities + p.col, ld);
      blas_gemm(false, true, rows, p.length, width, T(1), dout.row(begin), dout.ld, v.row(p.row), v.ld, T(0),
                dscores + p.col, ld);
    }
    const T cap = static_cast<T>(shape.rules.cap);
    for (std::int64_t row = 0; row < rows; ++row) {
      const T shift = lse[column + row];
      const std::int64_t document = shape.first_of(position + row);
      const T mean = row_dot(out.row(begin + row), dout.row(begin + row), width);
      if (dsink != nullptr) *dsink -= std::exp(sink - shift) * mean;
      for (const Columns::Piece& piece : keys.pieces) {
        const std::int64_t seen = piece.seen(shape.causal, position + row), other = piece.other(document, seen);
        T* const begin_of_p = probabilities + row * ld + piece.col;
        T* const begin_of_ds = dscores + row * ld + piece.col;
        T* const p = begin_of_p + other;
        T* const ds = begin_of_ds + other;
        std::fill(begin_of_p, p, T(0));
        std::fill(begin_of_ds, ds, T(0));
        for_simd<T>(seen - other, [&](std::int64_t i, std::int64_t count) {
          Simd<T> score = load(p + i, count, shift), slope = Simd<T>::Constant(T(1));
          if (cap > 0) {
            const Simd<T> part = (score / cap).tanh();
            slope -= part * part;
            score = cap * part;
          }
          const Simd<T> y = (score - shift).exp();
          Simd<T> dp = load(ds + i, count), dropped = y;
          if (dropout.mask) {
            const Simd<T> factors = dropout.factors<T>(position + row, piece.position + other + i);
            dp *= factors;
            dropped *= factors;
          }
          store<T>(p + i, count, dropped);
          store<T>(ds + i, count, y * (dp - mean) * slope * scale);
        });
        std::fill(begin_of_p + seen, begin_of_p + piece.length, T(0));
        std::fill(begin_of_ds + seen, begin_of_ds + piece.length, T(0));
      }
    }
    for (const Columns::Piece& p : keys.pieces) {
      blas_gemm(false, false, rows, d, p.length, T(1), dscores + p.col, ld, k.row(p.row), k.ld,
                p.col == 0 ? T(0) : T(1), grad.q.row(begin), grad.q.ld);
      blas_gemm(true, false, p.length, d, rows, T(1), dscores + p.col, ld, q.row(begin), q.ld, beta, grad.k.row(p.row),
                grad.k.ld);
      blas_gemm(true, false, p.length, width, rows, T(1), probabilities + p.col, ld, dout.row(begin), dout.ld, beta,
                grad.v.row(p.row), grad.v.ld);
    }
    if (keys.pieces.empty())
      for (std::int64_t row = 0; row < rows; ++row) std::fill_n(grad.q.row(begin + row), d, T(0));
    adds = true;
  });
}

template <class T>
void attention(const Attention& work, std::span<const Operand> operands) {
  std::optional<DropoutMask> mask;
  const Operand* documents = work.by_document ? &operands.back() : nullptr;
  const bool is_forward = work.pass == Pass::forward;
  const std::size_t of_sinks = work.rules.learns_sink ? is_forward ? 1 : 2 : 0,
                    sinks_at = operands.size() - (documents ? 1 : 0) - of_sinks;
  if (work.dropout > 0) mask.emplace(operands[sinks_at - 1], work.dropout, DropoutSite::attention);
  const std::int64_t group = work.heads / work.kv_heads;  // query heads of a kv head
  const std::size_t in = 0, out_at = work.kv_apart ? 2 : 1, gradient = out_at + 3;
  for (std::int64_t batch = 0; batch < work.batch; ++batch) {
    HeadShape shape{runs_of(work.queries, work.seq, work.batch, batch),
                    runs_of(work.keys, work.seq, work.batch, batch),
                    work.head_dim,
                    work.width_of_values(),
                    work.key_tokens(),
                    work.causal,
                    work.score_scale,
                    documents ? row_of<std::int32_t>(*documents, batch) : nullptr,
                    work.rules};
    for (std::int64_t head = 0; head < work.heads; ++head) {
      const std::int64_t col = head * work.head_dim, out_col = head * shape.value_dim, kv_head = head / group;
      // Rows count from the first row of the operand. q and kv are columns of one operand, or two operands.
      const auto parts_of = [&](std::size_t at) -> HeadParts<T> {  // kv follows q, when it is separate
        const Operand& kv = operands[work.kv_apart ? at + 1 : at];
        const std::int64_t k_begin = work.kv_apart ? 0 : work.heads * work.head_dim;
        const std::int64_t v_begin = k_begin + work.kv_heads * work.head_dim;
        return {head_view<T>(operands[at], 0, col), head_view<T>(kv, 0, k_begin + kv_head * work.head_dim),
                head_view<T>(kv, 0, v_begin + kv_head * shape.value_dim)};
      };
      const HeadView<T> out = head_view<T>(operands[out_at], 0, out_col);
      T* lse = row_of<T>(operands[out_at + 1], batch * work.heads + head);
      const HeadDropout dropout{mask ? &*mask : nullptr, batch, (work.first_head.value() + head) * work.seq};
      const T sink = of_sinks > 0 ? data_of<T>(operands[sinks_at])[head] : T(0);
      if (is_forward)
        forward_head(shape, parts_of(in), out, lse, dropout, sink);
      else
        dgrad_head<T>(shape, parts_of(in), out, lse, head_view<T>(operands[out_at + 2], 0, out_col), parts_of(gradient),
                      head % group != 0, dropout, sink,
                      of_sinks > 0 ? data_of<T>(operands[sinks_at + 1]) + head : nullptr);
    }
  }
}

template <class T>
void merge(const AttentionMerge& work, std::span<const Operand> o) {
  const std::int64_t rows = work.batch * work.tokens, d = work.head_dim;
  for (std::int64_t batch = 0; batch < work.batch; ++batch)
    for (std::int64_t head = 0; head < work.heads; ++head)
      for (std::int64_t token = 0; token < work.tokens; ++token) {
        const auto lse_of = [&](std::int64_t part) {
          return row_of<T>(o[1], (part * work.batch + batch) * work.heads + head)[token];
        };
        T top = -std::numeric_limits<T>::infinity(), sum = 0;
        for (std::int64_t part = 0; part < work.parts; ++part) top = max_or_nan(top, lse_of(part));
        const bool sees_any = top != -std::numeric_limits<T>::infinity();
        for (std::int64_t part = 0; sees_any && part < work.parts; ++part) sum += std::exp(lse_of(part) - top);
        const T lse = sees_any ? top + std::log(sum) : top;
        row_of<T>(o[3], batch * work.heads + head)[token] = lse;
        const std::int64_t row = work.row_of(batch, token);
        T* to = row_of<T>(o[2], row) + head * d;
        std::fill_n(to, d, T(0));
        for (std::int64_t part = 0; part < work.parts; ++part) {
          const T share = lse_of(part);
          if (!sees_any || share == -std::numeric_limits<T>::infinity()) continue;
          const T factor = std::exp(share - lse);
          const T* from = row_of<T>(o[0], part * rows + row) + head * d;
          for_simd<T>(d, [&](std::int64_t i, std::int64_t count) {
            store<T>(to + i, count, load(to + i, count) + factor * load(from + i, count));
          });
        }
      }
}

template <class T>
void split(const SplitHeads& work, const Operand& x, const Operand& y, bool is_back) {
  const std::int64_t q = work.heads * work.head_dim, kv = work.kv_heads * work.head_dim, groups = work.groups;
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t row = 0; row < work.rows; ++row) {
      T* whole = row_of<T>(x, row);
      T* part = row_of<T>(y, group * work.rows + row);
      for (const auto& [begin, cols] : {std::pair{std::int64_t{0}, q}, std::pair{q, kv}, std::pair{q + kv, kv}}) {
        T* const in_whole = whole + begin + group * (cols / groups);
        if (is_back)
          std::copy_n(part, cols / groups, in_whole);
        else
          std::copy_n(in_whole, cols / groups, part);
        part += cols / groups;
      }
    }
}

template <class T>
void join(const JoinQkv& work, std::span<const Operand> o) {
  const Operand& to = o.back();
  for (std::int64_t row = 0; row < work.rows; ++row) {
    T* const out = row_of<T>(to, row);
    for_simd<T>(work.q_cols(), [&](std::int64_t i, std::int64_t count) {
      Simd<T> sum = load(row_of<T>(o[0], row) + i, count);
      for (std::int64_t part = 1; part < work.parts; ++part)
        sum += load(row_of<T>(o[0], part * work.rows + row) + i, count);
      store<T>(out + i, count, sum);
    });
    for_simd<T>(work.kv_cols(), [&](std::int64_t i, std::int64_t count) {
      Simd<T> sum = load(row_of<T>(o[1], row) + i, count);
      if (work.sums == 2) sum += load(row_of<T>(o[2], row) + i, count);
      store<T>(out + work.q_cols() + i, count, sum);
    });
  }
}

}  // namespace

void run_kernel(const PackKv& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && have_one_dtype(operands));
  assert(has_shape(operands[0], work.rows, work.q_cols() + work.kv_cols()));
  assert(has_shape(operands[1], work.rows, work.kv_cols()));
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t row = 0; row < work.rows; ++row)
      std::copy_n(row_of<T>(operands[0], row) + work.q_cols(), work.kv_cols(), row_of<T>(operands[1], row));
  });
}

void run_kernel(const JoinQkv& work, std::span<const Operand> operands) {
  assert(operands.size() == static_cast<std::size_t>(work.sums) + 2 && have_one_dtype(operands));
  assert(has_shape(operands[0], work.parts * work.rows, work.q_cols()));
  assert(has_shape(operands[1], work.rows, work.kv_cols()));
  assert(has_shape(operands.back(), work.rows, work.q_cols() + work.kv_cols()));
  with_compute_type(operands[0].dtype, [&](auto type) { join<decltype(type)>(work, operands); });
}

void run_kernel(const Attention& work, std::span<const Operand> operands) {
  assert(work.pass != Pass::wgrad && work.kv_heads > 0 && work.heads % work.kv_heads == 0);
  [[maybe_unused]] const bool is_forward = work.pass == Pass::forward;
  [[maybe_unused]] const std::size_t out = work.kv_apart ? 2 : 1, count = is_forward ? out + 2 : 2 * out + 3;
  [[maybe_unused]] const std::int64_t tokens = work.batch * work.query_tokens(), keys = work.batch * work.key_tokens(),
                                      hidden = work.out_cols(), kv = work.kv_cols();
  assert(operands.size() ==
             count + (work.dropout > 0) + work.by_document + (work.rules.learns_sink ? is_forward ? 1u : 2u : 0u) &&
         have_one_dtype(operands.first(count)));
  assert(!work.by_document || has_shape(operands.back(), work.batch, work.seq));
  assert(has_shape(operands[0], tokens, work.qkv_cols()) && (!work.kv_apart || has_shape(operands[1], keys, kv)));
  assert(has_shape(operands[out], tokens, hidden));
  assert(has_shape(operands[out + 1], work.batch * work.heads, work.query_tokens()));
  assert(is_forward || has_shape(operands[out + 2], tokens, hidden));
  assert(is_forward || has_shape(operands[out + 3], tokens, work.kv_apart ? hidden : work.qkv_cols()));
  assert(is_forward || !work.kv_apart || has_shape(operands[out + 4], keys, kv));
  with_compute_type(operands[0].dtype, [&](auto type) { attention<decltype(type)>(work, operands); });
}

void run_kernel(const AttentionMerge& work, std::span<const Operand> operands) {
  assert(operands.size() == 4 && have_one_dtype(operands));
  assert(has_shape(operands[0], work.parts * work.batch * work.tokens, work.heads * work.head_dim));
  assert(has_shape(operands[1], work.parts * work.batch * work.heads, work.tokens));
  assert(has_shape(operands[2], work.batch * work.tokens, work.heads * work.head_dim));
  assert(has_shape(operands[3], work.batch * work.heads, work.tokens));
  with_compute_type(operands[0].dtype, [&](auto type) { merge<decltype(type)>(work, operands); });
}

void run_kernel(const SplitHeads& work, std::span<const Operand> operands) {
  const bool is_back = work.pass == Pass::backward;
  const Operand &x = operands[is_back ? 1 : 0], &y = operands[is_back ? 0 : 1];
  assert(operands.size() == 2 && have_one_dtype(operands) && has_shape(x, work.rows, work.cols()));
  assert(has_shape(y, work.groups * work.rows, work.cols() / work.groups));
  with_compute_type(x.dtype, [&](auto type) { split<decltype(type)>(work, x, y, is_back); });
}

}  // namespace stretto::host
