#include <array>
#include <catch2/catch.hpp>
#include <cstdint>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

TEST_CASE("fill writes every element and nothing between rows", "[kernels]") {
  Matrix<float> dst(3, 5, 2);
  run(Fill{15, 1.5}, {dst.write()});
  CHECK(max_difference(dst, constant_matrix(3, 5, 1.5f)) == 0);
  CHECK(std::isnan(dst.data[5]));
  Matrix<Bf16> half(1, 3);
  run(Fill{3, 1.0}, {half.write()});
  CHECK(half.at(0, 2).bits == 0x3f80);
  Matrix<std::int32_t> integers(1, 3);
  run(Fill{3, -2}, {integers.write()});
  CHECK(integers.at(0, 1) == -2);
}

TEST_CASE("cast to bf16 rounds every element and back is exact", "[kernels]") {
  auto src = random_matrix<float>(3, 41, 1, 2);
  src.at(1, 1) = NAN;
  Matrix<Bf16> half(3, 41, 1);
  Matrix<float> back(3, 41);
  Matrix<double> wide(3, 41, 5);
  run(Cast{123}, {src.operand(), half.write()});
  run(Cast{123}, {half.operand(), back.write()});
  run(Cast{123}, {half.operand(), wide.write()});
  back.for_each([&](std::int64_t row, std::int64_t col, float value) {
    if (row == 1 && col == 1) {
      CHECK(std::isnan(value));
      CHECK(std::isnan(wide.at(row, col)));
    } else {
      CHECK(value == to_float(to_bf16(src.at(row, col))));
      CHECK(wide.at(row, col) == value);
    }
  });
}

TEST_CASE("a cast between equal types of codes copies them", "[kernels]") {
  std::array<std::uint8_t, 6> from = {1, 2, 3, 200, 255, 6}, to = {};
  for (const Dtype codes : {Dtype::e4m3, Dtype::e5m2, Dtype::e2m1x2}) {
    to.fill(0);
    run(Cast{6}, {exec::Operand{from.data(), codes, 2, 3, 3}, exec::Operand{to.data(), codes, 2, 3, 3}});
    CHECK(from == to);
  }
}

TEST_CASE("cast between f32 and f64", "[kernels]") {
  auto src = random_matrix<double>(2, 9, 1, 1);
  Matrix<float> single(2, 9, 3);
  Matrix<double> wide(2, 9), copy(2, 9, 2);
  run(Cast{18}, {src.operand(), single.write()});
  run(Cast{18}, {single.operand(), wide.write()});
  run(Cast{18}, {src.operand(), copy.write()});
  CHECK(max_difference(single, wide) == 0);
  CHECK(max_difference(single, src) < 1e-7);
  CHECK(max_difference(single, src) > 0);
  CHECK(max_difference(copy, src) == 0);
}
