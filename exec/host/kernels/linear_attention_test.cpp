#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernel_testing.hpp"

namespace stretto::host::testing {
namespace linear_kernels {

LinearAttention shape(std::int64_t batch, std::int64_t heads, std::int64_t key_heads, std::int64_t seq,
                      std::int64_t key_dim, std::int64_t value_dim, bool delta) {
  LinearAttention work{Pass::forward, batch, heads, key_heads, seq, key_dim, value_dim};
  work.delta = work.unit_keys = delta;
  work.skip = !delta;
  work.scale = delta ? 0.5 : 1;
  return work;
}
const std::vector<LinearAttention> kSmall = {shape(2, 4, 2, 5, 3, 2, true), shape(1, 2, 1, 7, 2, 4, false)};
// Several chunks, and a last one that is not whole.
const std::vector<LinearAttention> kLong = {shape(1, 2, 1, 150, 8, 6, true), shape(2, 2, 2, 129, 4, 5, false)};

struct Inputs {
  Matrix<double> q, k, v, rate, decay, skip;

  explicit Inputs(const LinearAttention& w)
      : q(random_matrix<double>(w.rows(), w.key_cols(), 1, 2)),
        k(random_matrix<double>(w.rows(), w.key_cols(), 2, 1)),
        v(random_matrix<double>(w.rows(), w.value_cols(), 3)),
        rate(random_matrix<double>(w.rows(), w.heads, 4, 3)),
        decay(random_matrix<double>(w.rows(), w.heads, 5)),
        skip(random_matrix<double>(1, w.heads, 6)) {
    rate.for_each([](std::int64_t, std::int64_t, double& x) { x = 0.5 + 0.4 * x; });
    decay.for_each([](std::int64_t, std::int64_t, double& x) { x = -0.3 - 0.3 * x; });
  }
  std::vector<Operand> operands(const LinearAttention& w) {
    std::vector<Operand> all = {q.operand(), k.operand(), v.operand(), rate.operand(), decay.operand()};
    if (w.skip) all.push_back(skip.operand());
    return all;
  }
  Matrix<double> run_forward(const LinearAttention& w) {
    Matrix<double> out(w.rows(), w.value_cols(), 1);
    std::vector<Operand> all = operands(w);
    all.push_back(out.write());
    run(w, all);
    return out;
  }
};

// The recurrence of model/ops/linear_attention.hpp, token by token.
Matrix<double> recurrence(const LinearAttention& w, const Inputs& in) {
  Matrix<double> out(w.rows(), w.value_cols());
  for (std::int64_t sample = 0; sample < w.batch; ++sample)
    for (std::int64_t head = 0; head < w.heads; ++head) {
      Matrix<double> state = constant_matrix<double>(w.key_dim, w.value_dim, 0);
      const std::int64_t key = head / (w.heads / w.key_heads) * w.key_dim, value = head * w.value_dim;
      for (std::int64_t row = sample * w.seq; row < (sample + 1) * w.seq; ++row) {
        const auto length = [&](const Matrix<double>& x) {
          double sum = 1e-6;
          for (std::int64_t i = 0; i < w.key_dim; ++i) sum += x.at(row, key + i) * x.at(row, key + i);
          return w.unit_keys ? std::sqrt(sum) : 1.0;
        };
        const double of_q = length(in.q), of_k = length(in.k), rate = in.rate.at(row, head);
        state.for_each([&](std::int64_t, std::int64_t, double& s) { s *= std::exp(in.decay.at(row, head)); });
        for (std::int64_t j = 0; j < w.value_dim; ++j) {
          double u = in.v.at(row, value + j);
          for (std::int64_t i = 0; w.delta && i < w.key_dim; ++i) u -= state.at(i, j) * in.k.at(row, key + i) / of_k;
          double o = 0;
          for (std::int64_t i = 0; i < w.key_dim; ++i) {
            state.at(i, j) += in.k.at(row, key + i) / of_k * rate * u;
            o += state.at(i, j) * in.q.at(row, key + i) / of_q;
          }
          out.at(row, value + j) = w.scale * o + (w.skip ? in.skip.at(0, head) * in.v.at(row, value + j) : 0);
        }
      }
    }
  return out;
}

TEST_CASE("linear attention by chunks is the recurrence", "[kernels]") {
  for (const std::vector<LinearAttention>& shapes : {kSmall, kLong})
    for (const LinearAttention& work : shapes) {
      INFO(describe(work));
      Inputs in(work);
      CHECK(max_difference(in.run_forward(work), recurrence(work, in)) < 1e-12);
    }
}

TEST_CASE("the gradient of linear attention agrees with finite differences", "[kernels]") {
  for (const std::vector<LinearAttention>& shapes : {kSmall, kLong})
    for (const LinearAttention& work : shapes) {
      INFO(describe(work));
      Inputs in(work);
      const bool is_long = work.seq > kLinearChunk;
      const Matrix<double> d_out = random_matrix<double>(work.rows(), work.value_cols(), 7);
      Matrix<double> d = d_out, dq(work.rows(), work.key_cols(), 1), dk(work.rows(), work.key_cols()),
                     dv(work.rows(), work.value_cols(), 2), d_rate(work.rows(), work.heads),
                     d_decay(work.rows(), work.heads, 1), d_skip = constant_matrix<double>(1, work.heads, 0);
      LinearAttention back = work;
      back.pass = Pass::dgrad;
      std::vector<Operand> operands = in.operands(work);
      for (const Operand& operand : {d.operand(), dq.write(), dk.write(), dv.write(), d_rate.write(), d_decay.write()})
        operands.push_back(operand);
      run(back, operands);
      const auto value = [&] { return weighted_sum(d_out, in.run_forward(work)); };
      // A long sequence is checked in a few rows.
      const auto check = [&](Matrix<double>& x, const Matrix<double>& gradient) {
        for (std::int64_t row = 0; row < x.rows; row += is_long ? 41 : 1)
          for (std::int64_t col = 0; col < x.cols; ++col) {
            double& element = x.at(row, col);
            const double before = element;
            const auto at = [&](double moved) {
              element = moved;
              const double result = value();
              element = before;
              return result;
            };
            constexpr double h = 1e-3;  // the error of four points is about h⁴
            const double numeric =
                (8 * (at(before + h) - at(before - h)) - (at(before + 2 * h) - at(before - 2 * h))) / (12 * h);
            CHECK(gradient.at(row, col) == Approx(numeric).epsilon(1e-8).margin(1e-9));
          }
      };
      check(in.q, dq);
      check(in.k, dk);
      check(in.v, dv);
      check(in.rate, d_rate);
      check(in.decay, d_decay);
      if (!work.skip) continue;
      back.pass = Pass::wgrad;
      run(back, {in.v.operand(), d.operand(), d_skip.accumulate()});
      check(in.skip, d_skip);
    }
}

TEST_CASE("the short convolution and its gradients agree with finite differences", "[kernels]") {
  for (const bool bias : {false, true}) {
    const ShortConv work{Pass::forward, 10, 3, 5, 4, bias};
    Matrix<double> x = random_matrix<double>(10, 3, 1, 2), weight = random_matrix<double>(3, 4, 2),
                   b = random_matrix<double>(1, 3, 3), dy = random_matrix<double>(10, 3, 4), dx(10, 3, 1),
                   dw = constant_matrix<double>(3, 4, 0), db = constant_matrix<double>(1, 3, 0), y(10, 3);
    const auto with = [&](std::vector<Operand> first, const std::vector<Operand>& rest) {
      first.push_back(weight.operand());
      if (bias) first.push_back(b.operand());
      first.insert(first.end(), rest.begin(), rest.end());
      return first;
    };
    const auto value = [&] {
      run(work, with({x.operand()}, {y.write()}));
      return weighted_sum(dy, y);
    };
    value();
    double sum = bias ? b.at(0, 1) : 0;  // the second token of the second sequence sees two tokens
    for (std::int64_t back = 0; back < 2; ++back) sum += x.at(6 - back, 1) * weight.at(1, 3 - back);
    CHECK(y.at(6, 1) == Approx(sum / (1 + std::exp(-sum))));
    ShortConv back = work;
    back.pass = Pass::dgrad;
    run(back, with({dy.operand(), x.operand()}, {dx.write()}));
    back.pass = Pass::wgrad;
    std::vector<Operand> gradients = {dw.accumulate()};
    if (bias) gradients.push_back(db.accumulate());
    run(back, with({dy.operand(), x.operand()}, gradients));
    CHECK(max_difference(dx, numeric_gradient(x, value)) < 1e-9);
    CHECK(max_difference(dw, numeric_gradient(weight, value)) < 1e-9);
    if (bias) CHECK(max_difference(db, numeric_gradient(b, value)) < 1e-9);
  }
}

TEST_CASE("the gates of linear attention and their gradients agree with finite differences", "[kernels]") {
  for (const bool own_rate : {false, true}) {
    const LinearGates work{Pass::forward, 6, 3, own_rate};
    Matrix<double> raw_rate = random_matrix<double>(6, 3, 1), raw = random_matrix<double>(6, 3, 2, 1),
                   a_log = random_matrix<double>(1, 3, 3), dt_bias = random_matrix<double>(1, 3, 4), rate(6, 3),
                   decay(6, 3, 2), d_rate = random_matrix<double>(6, 3, 5), d_decay = random_matrix<double>(6, 3, 6),
                   d_raw_rate(6, 3), d_raw(6, 3), d_a = constant_matrix<double>(1, 3, 0),
                   d_bias = constant_matrix<double>(1, 3, 0);
    const auto in = [&](std::vector<Operand> all, bool has_rate) {
      if (has_rate) all.push_back(raw_rate.operand());
      for (Matrix<double>* one : {&raw, &a_log, &dt_bias}) all.push_back(one->operand());
      return all;
    };
    const auto value = [&] {
      std::vector<Operand> all = in({}, own_rate);
      all.insert(all.end(), {rate.write(), decay.write()});
      run(work, all);
      return weighted_sum(d_rate, rate) + weighted_sum(d_decay, decay);
    };
    value();
    const double step = std::log1p(std::exp(raw.at(4, 2) + dt_bias.at(0, 2)));
    CHECK(decay.at(4, 2) == Approx(-std::exp(a_log.at(0, 2)) * step));
    CHECK(rate.at(4, 2) == Approx(own_rate ? 1 / (1 + std::exp(-raw_rate.at(4, 2))) : step));
    LinearGates back = work;
    back.pass = Pass::dgrad;
    std::vector<Operand> all = in({d_rate.operand(), d_decay.operand()}, own_rate);
    if (own_rate) all.push_back(d_raw_rate.write());
    all.push_back(d_raw.write());
    run(back, all);
    back.pass = Pass::wgrad;
    all = in({d_rate.operand(), d_decay.operand()}, false);
    all.insert(all.end(), {d_a.accumulate(), d_bias.accumulate()});
    run(back, all);
    if (own_rate) CHECK(max_difference(d_raw_rate, numeric_gradient(raw_rate, value)) < 1e-9);
    CHECK(max_difference(d_raw, numeric_gradient(raw, value)) < 1e-9);
    CHECK(max_difference(d_a, numeric_gradient(a_log, value)) < 1e-9);
    CHECK(max_difference(d_bias, numeric_gradient(dt_bias, value)) < 1e-9);
  }
}

TEST_CASE("gated norms and their gradients agree with finite differences", "[kernels]") {
  for (const bool gate_first : {false, true}) {
    GatedNorm work{Pass::forward, 4, 2, 3, gate_first, 1e-3};
    Matrix<double> x = random_matrix<double>(4, 6, 1, 1), z = random_matrix<double>(4, 6, 2, 2),
                   weight = random_matrix<double>(1, work.weights(), 3), dy = random_matrix<double>(4, 6, 4), y(4, 6),
                   dx(4, 6, 1), dz(4, 6), dw = constant_matrix<double>(1, work.weights(), 0);
    const auto value = [&] {
      run(work, {x.operand(), z.operand(), weight.operand(), y.write()});
      return weighted_sum(dy, y);
    };
    value();
    const auto silu = [&](std::int64_t col) { return z.at(1, col) / (1 + std::exp(-z.at(1, col))); };
    double squares = 0;
    for (std::int64_t col = 3; col < 6; ++col) squares += std::pow(x.at(1, col) * (gate_first ? silu(col) : 1), 2);
    CHECK(y.at(1, 4) ==
          Approx(x.at(1, 4) * silu(4) / std::sqrt(squares / 3 + 1e-3) * weight.at(0, gate_first ? 4 : 1)));
    GatedNorm back = work;
    back.pass = Pass::dgrad;
    run(back, {dy.operand(), x.operand(), z.operand(), weight.operand(), dx.write(), dz.write()});
    back.pass = Pass::wgrad;
    run(back, {dy.operand(), x.operand(), z.operand(), dw.accumulate()});
    CHECK(max_difference(dx, numeric_gradient(x, value)) < 1e-8);
    CHECK(max_difference(dz, numeric_gradient(z, value)) < 1e-8);
    CHECK(max_difference(dw, numeric_gradient(weight, value)) < 1e-8);
  }
}

}  // namespace linear_kernels
}  // namespace stretto::host::testing
