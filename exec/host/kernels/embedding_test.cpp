#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {
constexpr std::int64_t kHidden = 19, kWords = 7, kPositions = 3;
}

TEST_CASE("embedding and its gradient", "[kernels]") {
  auto tokens = column({6, 0, 2, 2, 6, 6});
  auto wte = random_matrix<double>(kWords, kHidden, 1, 2), wpe = random_matrix<double>(5, kHidden, 2, 1);
  auto dx = random_matrix<double>(6, kHidden, 3, 4);
  Matrix<double> x(6, kHidden, 3);
  const Embedding forward{Pass::forward, 6, kHidden, kWords, kPositions};
  const auto loss = [&] {
    run(forward, {tokens.operand(), wte.operand(), wpe.operand(), x.write()});
    return weighted_sum(dx, x);
  };
  loss();
  for (std::int64_t row = 0; row < 6; ++row) {
    CHECK(x.at(row, 4) == wte.at(tokens.at(row, 0), 4) + wpe.at(row % kPositions, 4));
  }

  auto dwte = constant_matrix(kWords, kHidden, 1.0), dwpe = constant_matrix(std::int64_t{5}, kHidden, 2.0);
  run(Embedding{Pass::wgrad, 6, kHidden, kWords, kPositions},
      {tokens.operand(), dx.operand(), dwte.accumulate(), dwpe.accumulate()});
  dwte.for_each([](std::int64_t, std::int64_t, double& value) { value -= 1; });
  dwpe.for_each([](std::int64_t, std::int64_t, double& value) { value -= 2; });
  CHECK(max_difference(dwte, numeric_gradient(wte, loss)) < 1e-8);
  CHECK(max_difference(dwpe, numeric_gradient(wpe, loss)) < 1e-8);
}

TEST_CASE("embedding names a token outside the vocabulary", "[kernels]") {
  auto wte = constant_matrix<float>(kWords, kHidden, 1), wpe = constant_matrix<float>(kPositions, kHidden, 1);
  Matrix<float> x(2, kHidden);
  const Embedding work{Pass::forward, 2, kHidden, kWords, kPositions};
  for (const std::int32_t bad : {-1, 7}) {
    auto tokens = column({0, bad});
    CHECK_THROWS_WITH(run(work, {tokens.operand(), wte.operand(), wpe.operand(), x.write()}),
                      Catch::Contains(std::to_string(bad)) && Catch::Contains("[0, 7)"));
    CHECK(std::isnan(x.at(0, 0)));
    Embedding wgrad = work;
    wgrad.pass = Pass::wgrad;
    CHECK_THROWS_AS(run(wgrad, {tokens.operand(), x.operand(), wte.accumulate(), wpe.accumulate()}), Error);
  }
}

TEST_CASE("embedding without positions", "[kernels]") {
  auto tokens = column({6, 0, 2, 2, 6, 6});
  auto wte = random_matrix<double>(kWords, kHidden, 1, 2);
  auto dx = random_matrix<double>(6, kHidden, 3, 4);
  Matrix<double> x(6, kHidden, 3);
  const auto loss = [&] {
    run(Embedding{Pass::forward, 6, kHidden, kWords, kPositions, false}, {tokens.operand(), wte.operand(), x.write()});
    return weighted_sum(dx, x);
  };
  loss();
  for (std::int64_t row = 0; row < 6; ++row) CHECK(x.at(row, 4) == wte.at(tokens.at(row, 0), 4));

  auto dwte = constant_matrix(kWords, kHidden, 1.0);
  run(Embedding{Pass::wgrad, 6, kHidden, kWords, kPositions, false},
      {tokens.operand(), dx.operand(), dwte.accumulate()});
  dwte.for_each([](std::int64_t, std::int64_t, double& value) { value -= 1; });
  CHECK(max_difference(dwte, numeric_gradient(wte, loss)) < 1e-8);
}

TEST_CASE("shards of the embedding add up to the whole", "[kernels]") {
  constexpr std::int64_t kShards = 3, cols = 18, vocab = 9;
  auto tokens = column({8, 0, 2, 2, 6, 5});
  auto wte = random_matrix<double>(vocab, cols, 1), wpe = random_matrix<double>(kPositions, cols, 2);
  auto dx = random_matrix<double>(6, cols, 3);
  Matrix<double> x(6, cols);
  auto dwte = constant_matrix(vocab, cols, 0.0), dwpe = constant_matrix(kPositions, cols, 0.0);
  run(Embedding{Pass::forward, 6, cols, vocab, kPositions},
      {tokens.operand(), wte.operand(), wpe.operand(), x.write()});
  run(Embedding{Pass::wgrad, 6, cols, vocab, kPositions},
      {tokens.operand(), dx.operand(), dwte.accumulate(), dwpe.accumulate()});

  auto sum = constant_matrix(std::int64_t{6}, cols, 0.0);
  for (std::int64_t s = 0; s < kShards; ++s) {
    Matrix<double> rows(vocab / kShards, cols), positions(kPositions, cols / kShards), part(6, cols);
    rows.for_each([&](std::int64_t row, std::int64_t col, double& value) { value = wte.at(s * rows.rows + row, col); });
    positions.for_each(
        [&](std::int64_t row, std::int64_t col, double& value) { value = wpe.at(row, s * positions.cols + col); });
    run(Embedding{Pass::forward, 6, cols, vocab, kPositions, true, kShards, s},
        {tokens.operand(), rows.operand(), positions.operand(), part.write()});
    sum.for_each([&](std::int64_t row, std::int64_t col, double& value) { value += part.at(row, col); });
    auto drows = constant_matrix(rows.rows, cols, 0.0), dpositions = constant_matrix(kPositions, positions.cols, 0.0);
    run(Embedding{Pass::wgrad, 6, cols, vocab, kPositions, true, kShards, s},
        {tokens.operand(), dx.operand(), drows.accumulate(), dpositions.accumulate()});
    drows.for_each(
        [&](std::int64_t row, std::int64_t col, double& value) { CHECK(value == dwte.at(s * rows.rows + row, col)); });
    dpositions.for_each([&](std::int64_t row, std::int64_t col, double& value) {
      CHECK(value == dwpe.at(row, s * positions.cols + col));
    });
  }
  CHECK(max_difference(sum, x) < 1e-15);
}
