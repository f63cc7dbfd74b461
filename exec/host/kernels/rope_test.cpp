#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 3, kKvHeads = 1;

Rope work_of(std::int64_t seq, std::int64_t head_dim, double base = 10000) {
  return {Pass::forward, kBatch * seq, kHeads, kKvHeads, seq, head_dim, base};
}

template <class T>
Matrix<T> input_of(const Rope& work) {
  return random_matrix<T>(work.rows, (work.heads + 2 * work.kv_heads) * work.head_dim, 1, 3);
}

template <class T>
Matrix<T> turned(Rope work, Matrix<T> x, Pass pass = Pass::forward) {
  work.pass = pass;
  run(work, {x.accumulate()});
  return x;
}

// The formula of Hugging Face's modeling_rope_utils.py, by wavelengths: _compute_llama3_parameters, or linear.
double frequency_of(const Rope& work, std::int64_t pair) {
  const RopeScaling& s = work.scaling;
  const double plain = 1 / std::pow(work.base, double(2 * pair) / double(work.head_dim));
  if (s.factor == 1) return plain / s.interpolation_factor;
  const double old_context = double(s.original_max_position_embeddings), wavelength = 2 * M_PI / plain;
  if (wavelength < old_context / s.high_freq_factor) return plain;
  if (wavelength > old_context / s.low_freq_factor) return plain / s.factor;
  const double smooth = (old_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * plain / s.factor + smooth * plain;
}

// The definition, pair by pair; v is unchanged.
Matrix<double> naive(const Rope& work, const Matrix<double>& x) {
  Matrix<double> y = x;
  const std::int64_t half = work.head_dim / 2;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    for (std::int64_t head = 0; head < work.heads + work.kv_heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = double(row % work.seq) * frequency_of(work, i);
        const double a = x.at(row, head * work.head_dim + i), b = x.at(row, head * work.head_dim + half + i);
        y.at(row, head * work.head_dim + i) = a * std::cos(angle) - b * std::sin(angle);
        y.at(row, head * work.head_dim + half + i) = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("rope agrees with its definition, v untouched", "[kernels]") {
  for (const Rope& work : {work_of(5, 2), work_of(7, 6, 50), work_of(67, 64), work_of(500, 36, 5e5)}) {
    CAPTURE(work.seq, work.head_dim);
    const auto x = input_of<double>(work);
    const auto y = turned(work, x);
    CHECK(max_difference(y, naive(work, x)) < 1e-12);
    for (std::int64_t col = (kHeads + kKvHeads) * work.head_dim; col < y.cols; ++col)
      CHECK(y.at(3, col) == x.at(3, col));
    CHECK(max_difference(turned(work, input_of<float>(work)), y) < 1e-6);
  }
}

TEST_CASE("scaled rope agrees with its published definition: Llama 3.1's, and linear", "[kernels]") {
  Rope work = work_of(300, 64, 5e5);
  for (const RopeScaling& scaling : {RopeScaling{1, 8, 1, 4, 8192}, RopeScaling{1, 32, 1, 4, 100},
                                     RopeScaling{1, 2.5, 2, 3, 64}, RopeScaling{4}, RopeScaling{1.5}}) {
    CAPTURE(scaling.factor, scaling.interpolation_factor);
    work.scaling = scaling;
    const auto x = input_of<double>(work);
    const auto y = turned(work, x);
    CHECK(max_difference(y, naive(work, x)) < 1e-11);
    CHECK(max_difference(y, turned(work_of(300, 64, 5e5), x)) > 0.1);
    CHECK(max_difference(turned(work, y, Pass::dgrad), x) < 1e-14);
  }
  // The pairs are of all three kinds: unchanged, between, slowed by the factor.
  work.scaling = {1, 32, 1, 4, 100};
  const auto ratio = [&](std::int64_t pair) {
    return frequency_of(work, pair) * std::pow(work.base, double(pair) / 32);
  };
  CHECK(ratio(0) == 1);
  CHECK(ratio(4) == Approx(0.704976).epsilon(1e-5));
  CHECK(ratio(31) == Approx(1.0 / 32));
}

TEST_CASE("rope at far positions does not drift", "[kernels]") {
  const Rope work{Pass::forward, 16384, 1, 1, 16384, 4, 10000};
  const auto x = input_of<double>(work);
  CHECK(max_difference(turned(work, x), naive(work, x)) < 1e-11);  // rounding of the angle 16383 rad itself: 2e-12
}

TEST_CASE("rope dgrad agrees with finite differences and turns back", "[kernels]") {
  const Rope work = work_of(4, 6, 20);
  auto x = input_of<double>(work);
  const auto dy = random_matrix<double>(x.rows, x.cols, 2, 1);
  const auto dx = turned(work, dy, Pass::dgrad);
  CHECK(max_difference(dx, numeric_gradient(x, [&] { return weighted_sum(dy, turned(work, x)); })) < 1e-8);
  CHECK(max_difference(turned(work, turned(work, x), Pass::dgrad), x) < 1e-15);
}
