#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

struct Forward {
  Matrix<double> out, lse;
};

// Softmax attention computed directly, in the order of the definition.
Forward naive(const Attention& work, const Matrix<double>& qkv) {
  const std::int64_t hidden = work.heads * work.head_dim, kv = work.kv_heads * work.head_dim,
                     width = work.width_of_values();
  Forward result{Matrix<double>(work.batch * work.seq, work.out_cols()),
                 Matrix<double>(work.batch * work.heads, work.seq)};
  for (std::int64_t batch = 0; batch < work.batch; ++batch) {
    for (std::int64_t head = 0; head < work.heads; ++head) {
      for (std::int64_t query = 0; query < work.seq; ++query) {
        const std::int64_t row = batch * work.seq, col = head * work.head_dim;
        const std::int64_t kv_head = head / (work.heads / work.kv_heads), kv_col = kv_head * work.head_dim;
        const std::int64_t seen = work.causal ? query + 1 : work.seq;
        std::vector<double> p(static_cast<std::size_t>(seen));
        const ScoreRules& rules = work.rules;
        double sum = rules.has_sink ? 1 : 0;
        for (std::int64_t key = 0; key < seen; ++key) {
          if (rules.window > 0 && query - key >= rules.window) continue;
          if (rules.chunk > 0 && query / rules.chunk != key / rules.chunk) continue;
          double dot = 0;
          for (std::int64_t d = 0; d < work.head_dim; ++d) {
            dot += qkv.at(row + query, col + d) * qkv.at(row + key, hidden + kv_col + d);
          }
          double score = work.score_scale * dot / std::sqrt(static_cast<double>(work.head_dim));
          if (rules.cap > 0) score = rules.cap * std::tanh(score / rules.cap);
          p[key] = std::exp(score);
          sum += p[key];
        }
        result.lse.at(batch * work.heads + head, query) = std::log(sum);
        for (std::int64_t d = 0; d < width; ++d) {
          double value = 0;
          for (std::int64_t key = 0; key < seen; ++key)
            value += p[key] / sum * qkv.at(row + key, hidden + kv + kv_head * width + d);
          result.out.at(row + query, head * width + d) = value;
        }
      }
    }
  }
  return result;
}

template <class T>
struct AttentionRun {
  Matrix<T> qkv, out, lse, dout, dqkv;
};

// Runs forward and gradient with gaps between rows; outputs start as NaN.
template <class T>
AttentionRun<T> run_both(Attention work) {
  const std::int64_t tokens = work.batch * work.seq, hidden = work.out_cols(), qkv = work.qkv_cols();
  AttentionRun<T> r{random_matrix<T>(tokens, qkv, 1, 2), Matrix<T>(tokens, hidden, 3),
                    Matrix<T>(work.batch * work.heads, work.seq, 1), random_matrix<T>(tokens, hidden, 2, 1),
                    Matrix<T>(tokens, qkv, 4)};
  work.pass = Pass::forward;
  run(work, {r.qkv.operand(), r.out.write(), r.lse.write()});
  work.pass = Pass::dgrad;
  run(work, {r.qkv.operand(), r.out.operand(), r.lse.operand(), r.dout.operand(), r.dqkv.write()});
  return r;
}

Attention with_values(Attention work, std::int64_t value_dim, double score_scale) {
  work.value_dim = value_dim;
  work.score_scale = score_scale;
  return work;
}

Attention with_rules(Attention work, const ScoreRules& rules) {
  work.rules = rules;
  return work;
}

const std::vector<Attention> kRuledShapes{
    with_rules({Pass::forward, 2, 2, 1, 7, 3, true}, {.window = 3}),
    with_rules({Pass::forward, 1, 2, 2, 7, 3, true}, {.window = 1, .has_sink = true}),
    with_rules({Pass::forward, 1, 2, 1, 150, 4, true}, {.window = 70, .cap = 0.5}),
    with_rules({Pass::forward, 2, 2, 2, 150, 4, true}, {.chunk = 40, .cap = 1.5, .has_sink = true}),
};

const std::vector<Attention> kShapes{
    {Pass::forward, 2, 3, 3, 5, 3, true},
    {Pass::forward, 1, 2, 2, 5, 4, false},
    {Pass::forward, 2, 6, 2, 5, 3, true},
    {Pass::forward, 1, 3, 1, 67, 4, true},
    {Pass::forward, 1, 1, 1, 67, 5, true},
    {Pass::forward, 1, 1, 1, 67, 5, false},
    {Pass::forward, 1, 2, 2, 64, 8, true},
    {Pass::forward, 1, 1, 1, 1, 1, true},
    {Pass::forward, 1, 1, 1, 130, 33, true},
    with_values({Pass::forward, 2, 3, 3, 5, 6, true}, 4, 1.5),
    with_values({Pass::forward, 1, 4, 2, 67, 3, false}, 5, 1),
};

}  // namespace

TEST_CASE("attention agrees with its definition", "[kernels]") {
  host::prepare_blas();
  for (const Attention& work : kShapes) {
    CAPTURE(work.seq, work.head_dim, work.causal);
    const AttentionRun<double> r = run_both<double>(work);
    const Forward expected = naive(work, r.qkv);
    CHECK(max_difference(r.out, expected.out) < 1e-14);
    CHECK(max_difference(r.lse, expected.lse) < 1e-13);
  }
}

TEST_CASE("attention with windows, chunks, caps and sinks agrees with the naive softmax and its slopes", "[kernels]") {
  for (const Attention& work : kRuledShapes) {
    CAPTURE(work.seq, work.rules.window, work.rules.chunk, work.rules.cap);
    AttentionRun<double> r = run_both<double>(work);
    const Forward expected = naive(work, r.qkv);
    CHECK(max_difference(r.out, expected.out) < 1e-14);
    CHECK(max_difference(r.lse, expected.lse) < 1e-13);
    if (work.seq > 100) continue;
    Matrix<double> out(r.out.rows, r.out.cols), lse(r.lse.rows, r.lse.cols);
    const Matrix<double> slopes = numeric_gradient(r.qkv, [&] {
      run(work, {r.qkv.operand(), out.write(), lse.write()});
      return weighted_sum(r.dout, out);
    });
    CHECK(max_difference(r.dqkv, slopes) < 1e-8);
  }
  // Blocks of queries do not matter: pairs as they are counted one by one.
  for (const Attention& work : kRuledShapes) {
    double count = 0;
    for (std::int64_t query = 0; query < work.seq; ++query) count += double(query + 1 - work.rules.first_key(query));
    CHECK(attention_pairs(work).count == count);
    CHECK(attention_pairs(work).multiplied >= count);
  }
}

TEST_CASE("attention dgrad agrees with finite differences", "[kernels]") {
  for (const Attention& work :
       {kShapes[0], kShapes[1], kShapes[2], kShapes[9], kShapes[10], Attention{Pass::forward, 1, 2, 1, 67, 3, true}}) {
    CAPTURE(work.seq, work.head_dim, work.causal);
    AttentionRun<double> r = run_both<double>(work);
    Matrix<double> out(r.out.rows, r.out.cols), lse(r.lse.rows, r.lse.cols);
    const Matrix<double> expected = numeric_gradient(r.qkv, [&] {
      run(work, {r.qkv.operand(), out.write(), lse.write()});
      return weighted_sum(r.dout, out);
    });
    CHECK(max_difference(r.dqkv, expected) < 1e-8);
  }
}

TEST_CASE("attention dgrad is the same however the queries are blocked", "[kernels]") {
  // A sequence of several blocks: the gradient of a key that later blocks see must be summed over all of them.
  const Attention work{Pass::forward, 1, 1, 1, 200, 4, true};
  AttentionRun<double> r = run_both<double>(work);
  for (const std::int64_t token : {0, 63, 64, 127, 199}) {
    Matrix<double> out(200, 4), lse(1, 200);
    for (const std::int64_t col : {0, 5, 10}) {
      CAPTURE(token, col);
      const auto loss = [&](double shift) {
        r.qkv.at(token, col) += shift;
        run(work, {r.qkv.operand(), out.write(), lse.write()});
        r.qkv.at(token, col) -= shift;
        return weighted_sum(r.dout, out);
      };
      CHECK(r.dqkv.at(token, col) == Approx((loss(1e-5) - loss(-1e-5)) / 2e-5).margin(1e-8));
    }
  }
}

TEST_CASE("attention in f32 agrees with f64", "[kernels]") {
  for (const Attention& work : kShapes) {
    CAPTURE(work.seq, work.head_dim, work.causal);
    const AttentionRun<float> single = run_both<float>(work);
    const AttentionRun<double> exact = run_both<double>(work);
    CHECK(max_difference(single.out, exact.out) < 2e-6);
    CHECK(max_difference(single.lse, exact.lse) < 2e-6);
    CHECK(max_difference(single.dqkv, exact.dqkv) < 1e-5);
  }
}

TEST_CASE("attention is stable for large scores and keeps NaNs", "[kernels]") {
  const Attention work{Pass::forward, 1, 1, 1, 70, 4, true};
  auto qkv = random_matrix<float>(70, 12, 1);
  for (float& value : qkv.data) value *= 100;
  Matrix<float> out(70, 4), lse(1, 70);
  run(work, {qkv.operand(), out.write(), lse.write()});
  CHECK(max_difference(out, out) == 0);  // no NaN
  qkv.at(10, 0) = NAN;                   // makes a query see NaN: only its own row may change
  run(work, {qkv.operand(), out.write(), lse.write()});
  CHECK(std::isnan(out.at(10, 0)));
  CHECK_FALSE(std::isnan(out.at(11, 0)));
}

TEST_CASE("attention with grouped queries is attention with the keys and values repeated", "[kernels]") {
  const Attention grouped{Pass::forward, 2, 6, 2, 70, 4, true};
  const AttentionRun<double> r = run_both<double>(grouped);
  // The grouped operands repeated: one q, and each of k and v three times: heads 0..2 use the first, 3..5 the second.
  Attention repeated = grouped;
  repeated.kv_heads = 6;
  const auto source = [](std::int64_t col) {  // column of the 72-wide qkv in the 40-wide one
    if (col < 24) return col;
    const std::int64_t part = (col - 24) / 24, head = (col - 24) % 24 / 4;
    return 24 + part * 8 + head / 3 * 4 + col % 4;
  };
  Matrix<double> qkv(140, 72), out(140, 24), lse(12, 70), dqkv(140, 72), summed(140, 40);
  qkv.for_each([&](std::int64_t row, std::int64_t col, double& value) { value = r.qkv.at(row, source(col)); });
  Matrix<double> dout = r.dout;
  run(repeated, {qkv.operand(), out.write(), lse.write()});
  repeated.pass = Pass::dgrad;
  run(repeated, {qkv.operand(), out.operand(), lse.operand(), dout.operand(), dqkv.write()});
  CHECK(max_difference(out, r.out) == 0);
  CHECK(max_difference(lse, r.lse) == 0);
  summed.for_each([](std::int64_t, std::int64_t, double& value) { value = 0; });
  dqkv.for_each([&](std::int64_t row, std::int64_t col, double value) { summed.at(row, source(col)) += value; });
  CHECK(max_difference(r.dqkv, summed) < 1e-14);
}

namespace {

// Returns the rows of the held tokens, out of those of whole sequences, and back.
template <class T>
Matrix<T> part_of(const Matrix<T>& whole, const SequenceParts& parts, std::int64_t seq, std::int64_t batch,
                  std::int64_t first_col, std::int64_t cols) {
  Matrix<T> part(batch * parts.tokens(seq), cols);
  for (std::int64_t sample = 0; sample < batch; ++sample)
    for (const SequenceRun& run : runs_of(parts, seq, batch, sample))
      for (std::int64_t i = 0; i < run.length; ++i)
        for (std::int64_t col = 0; col < cols; ++col)
          part.at(run.row + i, col) = whole.at(sample * seq + run.position + i, first_col + col);
  return part;
}
template <class T>
void add_part(Matrix<T>& whole, const Matrix<T>& part, const SequenceParts& parts, std::int64_t seq, std::int64_t batch,
              std::int64_t first_col) {
  for (std::int64_t sample = 0; sample < batch; ++sample)
    for (const SequenceRun& run : runs_of(parts, seq, batch, sample))
      for (std::int64_t i = 0; i < run.length; ++i)
        for (std::int64_t col = 0; col < part.cols; ++col)
          whole.at(sample * seq + run.position + i, first_col + col) += part.at(run.row + i, col);
}

}  // namespace

TEST_CASE("attention of parts of a sequence, merged, is attention of the whole", "[kernels]") {
  constexpr std::int64_t batch = 2, heads = 4, kv_heads = 2, d = 3, hidden = heads * d, kv_cols = 2 * kv_heads * d;
  for (const std::int64_t of : {2, 3})
    for (const std::int64_t held : {std::int64_t{1}, of})
      for (const double dropout : {0.0, 0.3}) {
        const std::int64_t seq = of * 2 * 35;  // longer than a block of queries, and not a multiple of a dropout draw
        CAPTURE(of, held, dropout);
        Attention work{Pass::forward, batch, heads, kv_heads, seq, d, true, dropout, 5};
        Matrix<std::int32_t> key(1, kDropoutKeyWords);
        key.data = {11, -7, 3};
        auto qkv = random_matrix<double>(batch * seq, hidden + kv_cols, 1),
             dout = random_matrix<double>(batch * seq, hidden, 2);
        Matrix<double> out(batch * seq, hidden), lse(batch * heads, seq), dqkv(batch * seq, hidden + kv_cols);
        const auto with_key = [&](std::vector<host::Operand> operands) {
          if (dropout > 0) operands.push_back(key.operand());
          return operands;
        };
        run(work, with_key({qkv.operand(), out.write(), lse.write()}));
        work.pass = Pass::dgrad;
        run(work, with_key({qkv.operand(), out.operand(), lse.operand(), dout.operand(), dqkv.write()}));

        Matrix<double> merged(batch * seq, hidden), gradient(batch * seq, hidden + kv_cols);
        merged.for_each([](std::int64_t, std::int64_t, double& value) { value = 0; });
        gradient.for_each([](std::int64_t, std::int64_t, double& value) { value = 0; });
        work.kv_apart = true;
        for (std::int64_t part = 0; part + held <= of; part += held) {
          work.queries = {of, part, held};
          const std::int64_t tokens = work.query_tokens(), rows = batch * tokens;
          Matrix<double> q = part_of(qkv, work.queries, seq, batch, 0, hidden + kv_cols);
          Matrix<double> d_part = part_of(dout, work.queries, seq, batch, 0, hidden);
          Matrix<double> outs(of * rows, hidden), lses(of * batch * heads, tokens), o(rows, hidden),
              l(batch * heads, tokens), dq(rows, hidden);
          const auto slice = [](Matrix<double>& all, std::int64_t i, std::int64_t count) {
            host::Operand operand = all.write();
            operand.data = static_cast<double*>(operand.data) + i * count * operand.ld;
            operand.rows = count;
            return operand;
          };
          work.pass = Pass::forward;
          for (std::int64_t from = 0; from < of; ++from) {
            work.keys = {of, from, 1};
            Matrix<double> kv = part_of(qkv, work.keys, seq, batch, hidden, kv_cols);
            run(work, with_key({q.operand(), kv.operand(), slice(outs, from, rows), slice(lses, from, batch * heads)}));
          }
          run(AttentionMerge{of, batch, heads, tokens, d, held},
              {outs.operand(), lses.operand(), o.write(), l.write()});
          add_part(merged, o, work.queries, seq, batch, 0);
          work.pass = Pass::dgrad;
          for (std::int64_t from = 0; from < of; ++from) {
            work.keys = {of, from, 1};
            Matrix<double> kv = part_of(qkv, work.keys, seq, batch, hidden, kv_cols);
            Matrix<double> dkv(batch * seq / of, kv_cols);
            run(work, with_key({q.operand(), kv.operand(), o.operand(), l.operand(), d_part.operand(), dq.write(),
                                dkv.write()}));
            add_part(gradient, dq, work.queries, seq, batch, 0);
            add_part(gradient, dkv, work.keys, seq, batch, hidden);
          }
        }
        CHECK(max_difference(merged, out) < 1e-14);
        CHECK(max_difference(gradient, dqkv) < 1e-13);
      }
}
