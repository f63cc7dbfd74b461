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

TEST_CASE("AdamW with remainders is AdamW with masters, whose moments are rounded where they are kept in bf16",
          "[kernels][bf16]") {
  const std::int64_t elements = 2310;
  for (const bool is_low : {false, true}) {
    auto grad = random_matrix<float>(1, elements, 1), m = random_matrix<float>(1, elements, 2), v = m;
    v.for_each([](std::int64_t, std::int64_t, float& value) { value *= value; });
    auto master = random_matrix<float>(1, elements, 3);
    auto low_m = rounded(m), low_v = rounded(v);
    if (is_low) m = widened(low_m), v = widened(low_v);
    master.data[5] = std::bit_cast<float>(0xbf818000u);  // between two numbers of bf16, the one nearer to 0 even
    master.data[7] = std::bit_cast<float>(0x3f7fffffu);  // rounds up to 1
    Matrix<Bf16> param(1, elements);
    Matrix<std::int16_t> lower(1, elements);
    for (std::size_t i = 0; i < master.data.size(); ++i) {
      const Halves halves = halves_of(master.data[i]);
      param.data[i] = halves.upper;
      lower.data[i] = halves.lower;
      CHECK(std::bit_cast<std::uint32_t>(float_of(halves.upper, halves.lower)) ==
            std::bit_cast<std::uint32_t>(master.data[i]));
    }
    CHECK(param.data[5].bits == 0xbf82u);
    CHECK(param.data[7].bits == 0x3f80u);
    auto whole = rounded(master);
    auto norm_squared = constant_matrix(1, 1, 30.0);
    Matrix<double> hyper(1, 8);
    hyper.data = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.1, 0.05};
    const AdamW work{elements, {{10, 1100}}, 1, true, 0, true};
    if (is_low)
      run(work, {grad.operand(), norm_squared.operand(), hyper.operand(), param.accumulate(), low_m.accumulate(),
                 low_v.accumulate(), lower.accumulate()});
    else
      run(work, {grad.operand(), norm_squared.operand(), hyper.operand(), param.accumulate(), m.accumulate(),
                 v.accumulate(), lower.accumulate()});
    auto same_m = random_matrix<float>(1, elements, 2), same_v = v;
    if (is_low) same_m = m;
    if (!is_low) {
      same_v = same_m;
      same_v.for_each([](std::int64_t, std::int64_t, float& value) { value *= value; });
    }
    run(AdamW{elements, {{10, 1100}}, 1, true}, {grad.operand(), norm_squared.operand(), hyper.operand(), whole.write(),
                                                 same_m.accumulate(), same_v.accumulate(), master.accumulate()});
    bool is_same = true;
    for (std::size_t i = 0; i < master.data.size(); ++i)
      is_same = is_same && float_of(param.data[i], lower.data[i]) == master.data[i];
    CHECK(is_same);
    if (is_low) {
      CHECK(max_difference(widened(low_m), widened(rounded(same_m))) == 0);
      CHECK(max_difference(widened(low_v), widened(rounded(same_v))) == 0);
    } else {
      CHECK(max_difference(m, same_m) == 0);
      CHECK(max_difference(v, same_v) == 0);
    }
  }
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
