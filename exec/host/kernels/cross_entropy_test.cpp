#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr std::int64_t kRows = 4, kVocab = 53;
constexpr double kScale = 0.25;

template <class T>
double loss_of(Matrix<T> logits, Matrix<std::int32_t> targets, Matrix<T>* gradient = nullptr, double before = 0) {
  auto loss = constant_matrix(1, 1, before);
  run(CrossEntropy{logits.rows, logits.cols, logits.cols, kScale},
      {logits.accumulate(), targets.operand(), loss.accumulate()});
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
    CHECK_THROWS_WITH(
        run(CrossEntropy{2, kVocab, kVocab, 1}, {logits.accumulate(), targets.operand(), loss.accumulate()}),
        Catch::Contains(std::to_string(bad)) && Catch::Contains("[0, 53)"));
    CHECK(max_difference(logits, constant_matrix<float>(2, kVocab, 1)) == 0);
  }
}

TEST_CASE("padding columns take no part in cross-entropy", "[kernels]") {
  auto logits = random_matrix<double>(kRows, kVocab + 7, 1, 3);
  Matrix<double> classes(kRows, kVocab, 3), gradient = classes;
  classes.for_each([&](std::int64_t row, std::int64_t col, double& value) { value = logits.at(row, col); });
  auto targets = column({0, 52, 7, 7});
  const double expected = loss_of(classes, targets, &gradient);
  auto loss = constant_matrix(1, 1, 0.0);
  run(CrossEntropy{kRows, kVocab + 7, kVocab, kScale}, {logits.accumulate(), targets.operand(), loss.accumulate()});
  CHECK(loss.at(0, 0) == expected);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t col = 0; col < kVocab; ++col) CHECK(logits.at(row, col) == gradient.at(row, col));
    for (std::int64_t col = kVocab; col < kVocab + 7; ++col) CHECK(logits.at(row, col) == 0);
  }
}

TEST_CASE("slices of the vocabulary give the cross-entropy of the whole", "[kernels]") {
  for (const std::int64_t shards : {2, 3, 4}) {
    // with four shards the last one is only padding
    const std::int64_t cols = shards == 4 ? 20 : (kVocab + shards - 1) / shards;
    CAPTURE(shards, cols);
    auto logits = random_matrix<double>(kRows, kVocab, 1, 3);
    auto targets = column({0, 52, 7, 31});
    Matrix<double> gradient = logits;
    const double expected = loss_of(logits, targets, &gradient);

    std::vector<Matrix<double>> slices;
    Matrix<double> stats(shards, 3 * kRows);
    for (std::int64_t s = 0; s < shards; ++s) {
      slices.push_back(constant_matrix(kRows, cols, 100.0));  // padding is never read
      slices.back().for_each([&](std::int64_t row, std::int64_t col, double& value) {
        if (s * cols + col < kVocab) value = logits.at(row, s * cols + col);
      });
      Matrix<double> own(3, kRows);
      run(VocabStats{kRows, cols, kVocab, s * cols}, {slices.back().operand(), targets.operand(), own.write()});
      for (std::int64_t i = 0; i < 3 * kRows; ++i) stats.at(s, i) = own.at(i / kRows, i % kRows);
    }
    double loss = 0;
    for (std::int64_t s = 0; s < shards; ++s) {
      auto share = constant_matrix(1, 1, 0.0);
      run(CrossEntropy{kRows, cols, kVocab, kScale, shards, s * cols},
          {slices[s].accumulate(), targets.operand(), stats.operand(), share.accumulate()});
      loss += share.at(0, 0);
      slices[s].for_each([&](std::int64_t row, std::int64_t col, double& value) {
        CHECK(value == Approx(s * cols + col < kVocab ? gradient.at(row, s * cols + col) : 0).margin(1e-14));
      });
    }
    CHECK(loss == Approx(expected).epsilon(1e-13));
  }
}
