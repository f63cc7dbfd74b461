#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "exec/host/kernels/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr std::int64_t kRows = 4, kVocab = 53;
constexpr double kScale = 0.25;

template <class T>
double loss_of(Matrix<T> logits, Matrix<std::int32_t> targets, Matrix<T>* gradient = nullptr, double before = 0) {
  auto loss = constant_matrix(1, 1, before);
  run(CrossEntropy{logits.rows, logits.cols, kScale}, {logits.accumulate(), targets.operand(), loss.accumulate()});
  if (gradient) *gradient = logits;
  return loss.at(0, 0);
}

}  // namespace

TEST_CASE("cross-entropy agrees with its definition and finite differences", "[kernels]") {
  auto logits = random_matrix<double>(kRows, kVocab, 1, 3);
  const auto targets = column({0, 52, 7, 7});
  double expected = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (std::int64_t col = 0; col < kVocab; ++col) sum += std::exp(logits.at(row, col));
    expected += kScale * (std::log(sum) - logits.at(row, targets.at(row, 0)));
  }
  Matrix<double> gradient = logits;
  CHECK(loss_of(logits, targets, &gradient, 10.0) == Approx(10 + expected).epsilon(1e-14));
  CHECK(max_difference(gradient, numeric_gradient(logits, [&] { return loss_of(logits, targets); })) < 1e-9);

  auto single = random_matrix<float>(kRows, kVocab, 1);
  Matrix<float> gradient32 = single;
  CHECK(loss_of(single, targets, &gradient32) == Approx(expected).epsilon(1e-6));
  CHECK(max_difference(gradient32, gradient) < 1e-7);
}

TEST_CASE("cross-entropy is stable for huge logits and keeps NaNs", "[kernels]") {
  auto logits = constant_matrix<float>(2, kVocab, -3e4f);
  logits.at(0, 3) = 3e4f;
  logits.at(1, 50) = 3e4f;
  Matrix<float> gradient = logits;
  CHECK(loss_of(logits, column({3, 0}), &gradient) == Approx(kScale * 6e4));
  CHECK(gradient.at(0, 3) == Approx(0).margin(1e-7));
  CHECK(gradient.at(1, 50) == Approx(kScale));
  CHECK(gradient.at(1, 0) == Approx(-kScale));
  logits.at(0, 9) = NAN;
  CHECK(std::isnan(loss_of(logits, column({3, 0}))));
}

TEST_CASE("cross-entropy names a target outside the vocabulary and leaves the logits alone", "[kernels]") {
  for (const std::int32_t bad : {-1, 53}) {
    auto logits = constant_matrix<float>(2, kVocab, 1);
    auto targets = column({0, bad});
    auto loss = constant_matrix(1, 1, 0.0);
    CHECK_THROWS_WITH(run(CrossEntropy{2, kVocab, 1}, {logits.accumulate(), targets.operand(), loss.accumulate()}),
                      Catch::Contains(std::to_string(bad)) && Catch::Contains("[0, 53)"));
    CHECK(max_difference(logits, constant_matrix<float>(2, kVocab, 1)) == 0);
  }
}
