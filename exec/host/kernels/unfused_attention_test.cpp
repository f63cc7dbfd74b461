#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;
using stretto::host::Operand;

namespace {

Matrix<std::int32_t> key() {
  Matrix<std::int32_t> key(1, kDropoutKeyWords);
  key.data = {5, -7, 3};
  return key;
}

template <class T>
struct Result {
  Matrix<T> out, dqkv;
};

template <class T>
Matrix<T> qkv_of(const Attention& a) {
  return random_matrix<T>(a.batch * a.seq, (a.heads + 2 * a.kv_heads) * a.head_dim, 1, 2);
}
template <class T>
Matrix<T> dout_of(const Attention& a) {
  return random_matrix<T>(a.batch * a.seq, a.heads * a.head_dim, 2, 1);
}

template <class T>
Result<T> run_fused(Attention a) {
  const std::int64_t tokens = a.batch * a.seq;
  Matrix<T> qkv = qkv_of<T>(a), dout = dout_of<T>(a), lse(a.batch * a.heads, a.seq);
  Matrix<std::int32_t> keys = key();
  Result<T> r{Matrix<T>(tokens, a.heads * a.head_dim), Matrix<T>(tokens, qkv.cols)};
  const auto run_with_key = [&](std::vector<Operand> operands) {
    if (a.dropout > 0) operands.push_back(keys.operand());
    run(a, operands);
  };
  run_with_key({qkv.operand(), r.out.write(), lse.write()});
  a.pass = Pass::dgrad;
  run_with_key({qkv.operand(), r.out.operand(), lse.operand(), dout.operand(), r.dqkv.write()});
  return r;
}

// Runs with gaps between rows everywhere; dq, dk and dv are columns of one matrix.
template <class T>
Result<T> run_apart(const Attention& a) {
  const std::int64_t tokens = a.batch * a.seq, rows = a.batch * a.heads * a.seq, queries = a.heads * a.head_dim,
                     keys = a.kv_heads * a.head_dim;
  Matrix<T> qkv = qkv_of<T>(a), dout = dout_of<T>(a), scores(rows, a.seq, 1), p(rows, a.seq, 2),
            dropped(rows, a.seq, 3), gradient(rows, a.seq, 4), d_dropped(rows, a.seq, 1);
  Result<T> r{Matrix<T>(tokens, queries, 1), Matrix<T>(tokens, qkv.cols, 2)};
  const auto product = [&](AttentionFactor factor, const std::vector<Operand>& operands) {
    run(AttentionProduct{factor, a.batch, a.heads, a.kv_heads, a.seq, a.head_dim}, operands);
  };
  const auto columns = [&](std::int64_t first, std::int64_t count) {
    Operand operand = r.dqkv.write();
    operand.data = r.dqkv.data.data() + first;
    operand.cols = count;
    return operand;
  };
  Dropout dropout{Pass::forward, rows, a.seq, a.heads * a.seq, a.dropout, DropoutSite::attention};
  dropout.rows_before = a.first_head.value() * a.seq;
  dropout.keeps_mask = true;
  Matrix<std::int32_t> mask(rows, dropout.mask_cols(), 1), step = key();
  product(AttentionFactor::scores, {qkv.operand(), scores.write()});
  run(Softmax{Pass::forward, rows, a.seq, a.causal}, {scores.operand(), p.write()});
  const bool drops = a.dropout > 0;
  if (drops) run(dropout, {p.operand(), step.operand(), dropped.write(), mask.write()});
  product(AttentionFactor::context, {(drops ? dropped : p).operand(), qkv.operand(), r.out.write()});
  product(AttentionFactor::dv, {(drops ? dropped : p).operand(), dout.operand(), columns(queries + keys, keys)});
  product(AttentionFactor::dp, {dout.operand(), qkv.operand(), (drops ? d_dropped : gradient).write()});
  dropout.pass = Pass::dgrad;
  if (drops) run(dropout, {d_dropped.operand(), mask.operand(), gradient.write()});
  run(Softmax{Pass::dgrad, rows, a.seq, a.causal}, {p.operand(), gradient.accumulate()});
  product(AttentionFactor::dq, {gradient.operand(), qkv.operand(), columns(0, queries)});
  product(AttentionFactor::dk, {gradient.operand(), qkv.operand(), columns(queries, keys)});
  return r;
}

const std::vector<Attention> kUnfusedShapes = [] {
  std::vector<Attention> shapes;
  for (const double dropout : {0.0, 0.3})
    for (Attention a : {Attention{Pass::forward, 2, 3, 3, 5, 3, true}, Attention{Pass::forward, 1, 2, 2, 5, 4, false},
                        Attention{Pass::forward, 2, 6, 2, 7, 3, true}, Attention{Pass::forward, 1, 3, 1, 67, 4, true},
                        Attention{Pass::forward, 1, 1, 1, 1, 1, true}}) {
      a.dropout = dropout;
      a.first_head = 6;
      shapes.push_back(a);
    }
  return shapes;
}();

}  // namespace

TEST_CASE("products, softmax and dropout apart are attention", "[kernels]") {
  host::prepare_blas();
  for (const Attention& a : kUnfusedShapes) {
    INFO(describe(a));
    const Result<double> fused = run_fused<double>(a), apart = run_apart<double>(a);
    CHECK(max_difference(apart.out, fused.out) < 1e-14);
    CHECK(max_difference(apart.dqkv, fused.dqkv) < 1e-13);
    const Result<float> single = run_apart<float>(a);
    CHECK(max_difference(single.out, fused.out) < 5e-6);
    CHECK(max_difference(single.dqkv, fused.dqkv) < 3e-5);
  }
}

TEST_CASE("softmax is stable for large scores, hides the future and keeps NaNs", "[kernels]") {
  auto scores = random_matrix<float>(70, 70, 1);
  for (float& value : scores.data) value *= 1000;
  Matrix<float> p(70, 70);
  const Softmax work{Pass::forward, 70, 70, true};
  run(work, {scores.operand(), p.write()});
  for (std::int64_t row = 0; row < 70; ++row) {
    double sum = 0;
    for (std::int64_t col = 0; col < 70; ++col) {
      sum += p.at(row, col);
      if (col > row) REQUIRE(p.at(row, col) == 0);
    }
    CHECK(sum == Approx(1));
  }
  scores.at(10, 69) = NAN;  // a masked score
  run(work, {scores.operand(), p.write()});
  CHECK(max_difference(p, p) == 0);
  scores.at(10, 3) = NAN;
  run(work, {scores.operand(), p.write()});
  CHECK(std::isnan(p.at(10, 3)));
  CHECK_FALSE(std::isnan(p.at(11, 3)));
}
