#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

Matrix<Bf16> rounded(const Matrix<float>& from) {
  Matrix<Bf16> to(from.rows, from.cols, from.ld - from.cols);
  to.for_each([&](std::int64_t row, std::int64_t col, Bf16& value) { value = to_bf16(from.at(row, col)); });
  return to;
}
Matrix<float> widened(const Matrix<Bf16>& from) {
  Matrix<float> to(from.rows, from.cols, from.ld - from.cols);
  to.for_each([&](std::int64_t row, std::int64_t col, float& value) { value = to_float(from.at(row, col)); });
  return to;
}

}  // namespace

TEST_CASE("an operation in bf16 is that in f32 on the same values, rounded once", "[kernels][bf16]") {
  host::prepare_blas();
  const Gemm work{7, 5, 9, false, true, true};
  auto a = rounded(random_matrix<float>(7, 9, 1, 3)), b = rounded(random_matrix<float>(5, 9, 2, 2)),
       bias = rounded(random_matrix<float>(1, 5, 3));
  auto wide_a = widened(a), wide_b = widened(b), wide_bias = widened(bias);
  for (const bool accumulates : {false, true}) {
    auto c = rounded(random_matrix<float>(7, 5, 4, 6));
    auto wide_c = widened(c);
    const Bf16 gap = c.data[5];
    run(work, {a.operand(), b.operand(), bias.operand(), accumulates ? c.accumulate() : c.write()});
    run(work,
        {wide_a.operand(), wide_b.operand(), wide_bias.operand(), accumulates ? wide_c.accumulate() : wide_c.write()});
    CHECK(max_difference(widened(c), widened(rounded(wide_c))) == 0);
    CHECK(c.data[5].bits == gap.bits);  // the gap between rows belongs to another operand
  }
  // Weight gradients are summed in f32.
  auto sum = random_matrix<float>(7, 5, 5), same = sum;
  run(Gemm{7, 5, 9, false, true, false}, {a.operand(), b.operand(), sum.accumulate()});
  run(Gemm{7, 5, 9, false, true, false}, {wide_a.operand(), wide_b.operand(), same.accumulate()});
  CHECK(max_difference(sum, same) == 0);
}

TEST_CASE("AdamW with master parameters updates them as without, and rounds", "[kernels][bf16]") {
  const std::int64_t elements = 2310;
  const auto step = [&](bool has_master) {
    auto grad = random_matrix<float>(1, elements, 1), m = random_matrix<float>(1, elements, 2), v = m;
    v.for_each([](std::int64_t, std::int64_t, float& value) { value *= value; });
    auto exact = random_matrix<float>(1, elements, 3);
    auto param = rounded(exact);
    auto norm_squared = constant_matrix(1, 1, 30.0);
    Matrix<double> hyper(1, 8);
    hyper.data = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.1, 0.05};
    if (has_master)
      run(AdamW{elements, {{10, 1100}}, 1, true}, {grad.operand(), norm_squared.operand(), hyper.operand(),
                                                   param.write(), m.accumulate(), v.accumulate(), exact.accumulate()});
    else
      run(AdamW{elements, {{10, 1100}}, 1}, {grad.operand(), norm_squared.operand(), hyper.operand(),
                                             exact.accumulate(), m.accumulate(), v.accumulate()});
    if (has_master) CHECK(max_difference(widened(param), widened(rounded(exact))) == 0);
    return exact;
  };
  CHECK(max_difference(step(true), step(false)) == 0);
}
