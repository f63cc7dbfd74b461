#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

template <class T>
Matrix<T> naive(const Gemm& work, const Matrix<T>& a, const Matrix<T>& b, const Matrix<T>* bias, const Matrix<T>* old) {
  Matrix<T> c(work.m, work.n);
  c.for_each([&](std::int64_t row, std::int64_t col, T& value) {
    value = (bias ? bias->at(0, col) : T(0)) + (old ? old->at(row, col) : T(0));
    for (std::int64_t k = 0; k < work.k; ++k) {
      value += (work.trans_a ? a.at(k, row) : a.at(row, k)) * (work.trans_b ? b.at(col, k) : b.at(k, col));
    }
  });
  return c;
}

template <class T>
void check_all_forms(double tolerance) {
  for (int form = 0; form < 16; ++form) {
    CAPTURE(form);
    const Gemm work{7, 5, 9, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0};
    auto a = work.trans_a ? random_matrix<T>(9, 7, 1, 3) : random_matrix<T>(7, 9, 1, 3);
    auto b = work.trans_b ? random_matrix<T>(5, 9, 2, 2) : random_matrix<T>(9, 5, 2, 2);
    auto bias = random_matrix<T>(1, 5, 3);
    const bool accumulate = (form & 8) != 0;
    auto c = accumulate ? random_matrix<T>(7, 5, 4, 6) : Matrix<T>(7, 5, 6);
    const Matrix<T> expected = naive(work, a, b, work.bias ? &bias : nullptr, accumulate ? &c : nullptr);
    std::vector<host::Operand> operands{a.operand(), b.operand()};
    if (work.bias) operands.push_back(bias.operand());
    operands.push_back(accumulate ? c.accumulate() : c.write());
    run(work, operands);
    CHECK(max_difference(c, expected) < tolerance);
    // The gap between rows belongs to another operand.
    CHECK(std::isnan(c.data[5]));
  }
}

}  // namespace

TEST_CASE("gemm agrees with the triple loop for every transposition, bias and access mode", "[kernels]") {
  host::prepare_blas();
  check_all_forms<double>(1e-14);
  check_all_forms<float>(1e-5);
}

TEST_CASE("gemm with an empty inner dimension writes zeros or the bias", "[kernels]") {
  Matrix<double> a(2, 0, 1), b(0, 3), c(2, 3);
  run(Gemm{2, 3, 0, false, false, false}, {a.operand(), b.operand(), c.write()});
  CHECK(max_difference(c, constant_matrix(2, 3, 0.0)) == 0);
}

TEST_CASE("a gemm with an epilogue is the gemm and then the operation", "[kernels]") {
  host::prepare_blas();
  for (const bool bias : {false, true}) {
    auto a = random_matrix<double>(7, 9, 1), b = random_matrix<double>(5, 9, 2, 2),
         bias_of = random_matrix<double>(1, 5, 3);
    const Gemm plain{7, 5, 9, false, true, bias};
    const auto run_gemm = [&](const Gemm& work, std::vector<host::Operand> outputs) {
      std::vector<host::Operand> operands{a.operand(), b.operand()};
      if (bias) operands.push_back(bias_of.operand());
      operands.insert(operands.end(), outputs.begin(), outputs.end());
      run(work, operands);
    };
    Matrix<double> sum(7, 5), activated(7, 5), x(7, 5, 3), c(7, 5, 1);
    run_gemm(plain, {sum.write()});
    run(Elementwise{ElementwiseFn::gelu, 7, 5}, {sum.operand(), activated.write()});
    Gemm fused = plain;
    fused.epilogue = GemmEpilogue::gelu;
    run_gemm(fused, {x.write(), c.write()});
    CHECK(max_difference(x, sum) == 0);
    CHECK(max_difference(c, activated) == 0);
    CHECK(std::isnan(x.data[5]));

    auto before = random_matrix<double>(7, 5, 4, 2);
    Matrix<double> gradient(7, 5), d(7, 5);
    run(Elementwise{ElementwiseFn::gelu_backward, 7, 5}, {sum.operand(), before.operand(), gradient.write()});
    fused.epilogue = GemmEpilogue::gelu_backward;
    run_gemm(fused, {before.operand(), d.write()});
    CHECK(max_difference(d, gradient) == 0);

    auto sums = random_matrix<double>(1, 5, 5);
    Matrix<double> fused_sums = sums, again(7, 5);
    run(Elementwise{ElementwiseFn::column_sum, 7, 5}, {gradient.operand(), sums.accumulate()});
    fused.epilogue = GemmEpilogue::gelu_backward_bias_gradient;
    run_gemm(fused, {before.operand(), fused_sums.accumulate(), again.write()});
    CHECK(max_difference(again, gradient) == 0);
    CHECK(max_difference(fused_sums, sums) == 0);
  }
}

TEST_CASE("a gemm with the residual as epilogue adds as the addition does", "[kernels]") {
  host::prepare_blas();
  for (const bool has_bias : {false, true}) {
    auto a = random_matrix<float>(7, 9, 1, 2), b = random_matrix<float>(5, 9, 2), bias = random_matrix<float>(1, 5, 3),
         x = random_matrix<float>(7, 5, 4, 3);
    Matrix<float> product(7, 5), apart(7, 5), fused(7, 5, 6);
    Gemm work{7, 5, 9, false, true, false};
    run(work, {a.operand(), b.operand(), product.write()});
    std::vector<host::Operand> operands{a.operand(), b.operand(), x.operand(), fused.write()};
    if (has_bias) {
      operands.insert(operands.begin() + 2, bias.operand());
      run(Elementwise{ElementwiseFn::bias_add, 7, 5}, {x.operand(), product.operand(), bias.operand(), apart.write()});
    } else {
      run(Elementwise{ElementwiseFn::add, 7, 5}, {x.operand(), product.operand(), apart.write()});
    }
    work.bias = has_bias;
    work.epilogue = GemmEpilogue::residual;
    run(work, operands);
    CHECK(max_difference(fused, apart) == 0);
    CHECK(std::isnan(fused.data[5]));
  }
}

TEST_CASE("a weight gradient with that of the bias as epilogue is both", "[kernels]") {
  host::prepare_blas();
  auto dy = random_matrix<double>(9, 7, 1, 2), x = random_matrix<double>(9, 5, 2);
  auto weight = random_matrix<double>(7, 5, 3), bias = random_matrix<double>(1, 7, 4);
  Matrix<double> fused_weight = weight, fused_bias = bias;
  const Gemm plain{7, 5, 9, true, false, false};
  run(plain, {dy.operand(), x.operand(), weight.accumulate()});
  run(Elementwise{ElementwiseFn::column_sum, 9, 7}, {dy.operand(), bias.accumulate()});
  Gemm fused = plain;
  fused.epilogue = GemmEpilogue::bias_gradient;
  run(fused, {dy.operand(), x.operand(), fused_bias.accumulate(), fused_weight.accumulate()});
  CHECK(max_difference(fused_weight, weight) == 0);
  CHECK(max_difference(fused_bias, bias) == 0);
}
