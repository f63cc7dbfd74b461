#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr double kLr = 1e-2, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1, kClip = 1.0;

struct State {
  Matrix<double> param, m, v;
};

// AdamW as in the paper (algorithm 2, decoupled decay, schedule multiplier folded into lr).
void textbook(State& state, const Matrix<double>& grad, double norm_squared, int t, double clip,
              const std::vector<AdamW::Range>& decayed) {
  const double norm = std::sqrt(norm_squared);
  const double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
  for (std::int64_t i = 0; i < grad.cols; ++i) {
    const double g = grad.at(0, i) * factor;
    double& m = state.m.at(0, i);
    double& v = state.v.at(0, i);
    double& p = state.param.at(0, i);
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    const double m_hat = m / (1 - std::pow(kBeta1, t)), v_hat = v / (1 - std::pow(kBeta2, t));
    bool decays = false;
    for (const auto& range : decayed) decays = decays || (i >= range.begin && i < range.end);
    p = p - kLr * (m_hat / (std::sqrt(v_hat) + kEps) + (decays ? kDecay * p : 0));
  }
}

Matrix<double> hyper_at(int t, double clip) {
  Matrix<double> hyper(1, 8);
  hyper.data = {kLr, kBeta1, kBeta2, kEps, kDecay, clip, 1 - std::pow(kBeta1, t), 1 - std::pow(kBeta2, t)};
  return hyper;
}

// Runs three steps over `elements` in `shards` equal parts, with a call for each part of the buffers.
template <class T>
std::vector<T> three_steps(std::int64_t elements, std::int64_t shards, double clip,
                           const std::vector<AdamW::Range>& decayed) {
  auto param = random_matrix<T>(1, elements, 1);
  auto m = constant_matrix(1, elements, T(0)), v = m;
  const std::int64_t part = elements / shards;
  for (int t = 1; t <= 3; ++t) {
    auto grad = random_matrix<T>(1, elements, 10 + static_cast<std::uint64_t>(t));
    auto norm_squared = constant_matrix(1, 1, 30.0 / t);
    auto hyper = hyper_at(t, clip);
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      const auto slice = [&](Matrix<T>& whole, AccessMode mode) {
        return host::Operand{whole.data.data() + shard * part, dtype_of<T>(), 1, part, part, mode};
      };
      run(AdamW{part, decayed, shards, false, shard},
          {slice(grad, AccessMode::read), norm_squared.operand(), hyper.operand(), slice(param, AccessMode::accumulate),
           slice(m, AccessMode::accumulate), slice(v, AccessMode::accumulate)});
    }
  }
  std::vector<T> all = param.data;
  all.insert(all.end(), m.data.begin(), m.data.end());
  all.insert(all.end(), v.data.begin(), v.data.end());
  return all;
}

const std::vector<AdamW::Range> kRanges{{0, 5}, {40, 1100}, {1500, 2100}};

}  // namespace

TEST_CASE("AdamW agrees with the textbook over three steps with decay ranges", "[kernels]") {
  constexpr std::int64_t elements = 2310;
  for (const double clip : {kClip, 0.0, 1e3}) {
    CAPTURE(clip);
    State expected{random_matrix<double>(1, elements, 1), constant_matrix(1, elements, 0.0),
                   constant_matrix(1, elements, 0.0)};
    for (int t = 1; t <= 3; ++t) {
      textbook(expected, random_matrix<double>(1, elements, 10 + static_cast<std::uint64_t>(t)), 30.0 / t, t, clip,
               kRanges);
    }
    const auto actual = three_steps<double>(elements, 1, clip, kRanges);
    const auto single = three_steps<float>(elements, 1, clip, kRanges);
    double worst = 0, worst_single = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      worst = std::max(worst, std::fabs(actual[i] - expected.param.data[i]));
      worst_single = std::max(worst_single, std::fabs(static_cast<double>(single[i]) - expected.param.data[i]));
      worst = std::max(worst, std::fabs(actual[elements + i] - expected.m.data[i]));
      worst = std::max(worst, std::fabs(actual[2 * elements + i] - expected.v.data[i]));
    }
    CHECK(worst < 1e-14);
    CHECK(worst_single < 1e-6);
  }
}

TEST_CASE("AdamW on shards gives the bits of the whole", "[kernels]") {
  // Shards begin and end inside decay ranges and off any vector boundary.
  for (const std::int64_t shards : {2, 3, 7}) {
    CAPTURE(shards);
    CHECK(three_steps<float>(2310, shards, kClip, kRanges) == three_steps<float>(2310, 1, kClip, kRanges));
    CHECK(three_steps<double>(2310, shards, kClip, kRanges) == three_steps<double>(2310, 1, kClip, kRanges));
  }
}

TEST_CASE("AdamW lets a NaN norm through", "[kernels]") {
  auto param = constant_matrix(1, 3, 1.f), m = constant_matrix(1, 3, 0.f), v = m, grad = m;
  auto norm_squared = constant_matrix(1, 1, std::numeric_limits<double>::quiet_NaN());
  auto hyper = hyper_at(1, kClip);
  run(AdamW{3, {}, 1},
      {grad.operand(), norm_squared.operand(), hyper.operand(), param.accumulate(), m.accumulate(), v.accumulate()});
  CHECK(std::isnan(param.at(0, 2)));
}

TEST_CASE("sum of squares accumulates in f64", "[kernels]") {
  for (const std::int64_t elements : {0, 1, 15, 16, 1003}) {
    CAPTURE(elements);
    auto x = random_matrix<float>(1, elements, 1);
    auto sum = constant_matrix(1, 1, 5.0);
    double expected = 5;
    for (const float value : x.data) expected += static_cast<double>(value) * static_cast<double>(value);
    run(SumSquares{elements}, {x.operand(), sum.accumulate()});
    CHECK(sum.at(0, 0) == Approx(expected).epsilon(1e-14));
  }
  // 2^24 + 1 is not an f32: an f32 sum would stay at 2^24.
  auto x = constant_matrix(1, 33, 1.f);
  x.at(0, 0) = 4096;
  auto sum = constant_matrix(1, 1, 0.0);
  run(SumSquares{33}, {x.operand(), sum.accumulate()});
  CHECK(sum.at(0, 0) == 16777216.0 + 32);
}
