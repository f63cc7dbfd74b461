#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr std::int64_t kDropoutSeq = 6, kSamples = 3, kDropoutRows = kSamples * kDropoutSeq, kDropoutCols = 45;
constexpr double kProbability = 0.3;

Matrix<std::int32_t> key_of(std::int32_t low, std::int32_t first_sample) {
  Matrix<std::int32_t> key(1, kDropoutKeyWords);
  key.data = {low, -7, first_sample};
  return key;
}

Dropout work_of(Pass pass = Pass::forward) {
  Dropout work;
  work.pass = pass;
  work.rows = kDropoutRows;
  work.cols = kDropoutCols;
  work.seq = kDropoutSeq;
  work.probability = kProbability;
  work.site = DropoutSite::residual_1;
  return work;
}

// Returns the result of dropout on ones.
template <class T = double>
Matrix<T> mask_of(const Dropout& work, Matrix<std::int32_t> key) {
  auto x = constant_matrix<T>(work.rows, work.cols, T(1));
  Matrix<T> y(work.rows, work.cols, 3);
  run(work, {x.operand(), key.operand(), y.write()});
  return y;
}

}  // namespace

TEST_CASE("dropout keeps its share of elements and scales them up", "[kernels]") {
  Dropout work = work_of();
  work.rows = 40 * kDropoutSeq;
  work.cols = 1001;
  const Matrix<double> mask = mask_of(work, key_of(1, 0));
  std::int64_t kept = 0;
  for (std::int64_t row = 0; row < work.rows; ++row)
    for (std::int64_t col = 0; col < work.cols; ++col) {
      const double factor = mask.at(row, col);
      if (factor != 0) ++kept;
      if (factor != 0) REQUIRE(factor == 1 / (1 - kProbability));
    }
  const double count = double(work.rows * work.cols), sigma = std::sqrt(count * kProbability * (1 - kProbability));
  CHECK(std::fabs(double(kept) - count * (1 - kProbability)) < 4 * sigma);
}

TEST_CASE("dropout of a residual branch: c = a + mask (b + bias), and the gradient has the same mask", "[kernels]") {
  Dropout work = work_of();
  const Matrix<double> mask = mask_of(work, key_of(1, 4));
  work.bias = work.residual = true;
  auto a = random_matrix<double>(kDropoutRows, kDropoutCols, 1, 2),
       b = random_matrix<double>(kDropoutRows, kDropoutCols, 2);
  auto bias = random_matrix<double>(1, kDropoutCols, 3), dc = random_matrix<double>(kDropoutRows, kDropoutCols, 4);
  auto key = key_of(1, 4);
  Matrix<double> c(kDropoutRows, kDropoutCols), db(kDropoutRows, kDropoutCols), expected_c = a, expected_db = dc;
  run(work, {a.operand(), b.operand(), bias.operand(), key.operand(), c.write()});
  expected_c.for_each([&](std::int64_t row, std::int64_t col, double& value) {
    value += mask.at(row, col) * (b.at(row, col) + bias.at(0, col));
  });
  CHECK(max_difference(c, expected_c) < 1e-15);
  run(work_of(Pass::dgrad), {dc.operand(), key.operand(), db.write()});
  expected_db.for_each([&](std::int64_t row, std::int64_t col, double& value) { value *= mask.at(row, col); });
  CHECK(max_difference(db, expected_db) == 0);
}

TEST_CASE("what dropout keeps depends on key, site and sample, and on nothing else", "[kernels]") {
  const Dropout work = work_of();
  const Matrix<double> mask = mask_of(work, key_of(1, 4));
  CHECK(max_difference(mask, mask_of<float>(work, key_of(1, 4))) < 1e-7);
  CHECK(max_difference(mask, mask_of(work, key_of(2, 4))) > 1);
  Dropout other = work;
  other.site = DropoutSite::residual_2;
  CHECK(max_difference(mask, mask_of(other, key_of(1, 4))) > 1);
  // The samples from the second on, in a micro-batch of their own.
  Dropout later = work;
  later.rows = kDropoutRows - kDropoutSeq;
  Matrix<double> tail(later.rows, kDropoutCols);
  tail.for_each([&](std::int64_t row, std::int64_t col, double& value) { value = mask.at(row + kDropoutSeq, col); });
  CHECK(max_difference(tail, mask_of(later, key_of(1, 5))) == 0);
  // A rank's share of the tokens.
  Dropout part = work;
  part.rows = kDropoutRows / 2;
  for (const std::int64_t shard : {0, 1}) {
    part.first_row = shard * part.rows;
    Matrix<double> rows(part.rows, kDropoutCols);
    rows.for_each(
        [&](std::int64_t row, std::int64_t col, double& value) { value = mask.at(shard * part.rows + row, col); });
    CHECK(max_difference(rows, mask_of(part, key_of(1, 4))) == 0);
  }
}
