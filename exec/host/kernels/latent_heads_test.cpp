#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernel_testing.hpp"

namespace stretto::host::testing {
namespace latent_kernels {

const std::vector<LatentHeads> kShapes = {
    {Pass::forward, 10, 3, 5, 2, 4, 3, 100},
    {Pass::forward, 7, 1, 7, 1, 2, 5, 10000},
    {Pass::forward,
     12,
     2,
     6,
     3,
     6,
     2,
     50,
     {.factor = 4,
      .beta_fast = 3,
      .beta_slow = 0.2,
      .mscale = 0.7,
      .mscale_all_dim = 0.9,
      .original_max_position_embeddings = 16}},
};

template <class T>
struct Heads {
  Matrix<T> up, key, q, kv;
};

template <class T>
Heads<T> run_forward(LatentHeads work) {
  Heads<T> h{random_matrix<T>(work.rows, work.up_cols(), 1, 2), random_matrix<T>(work.rows, work.rope, 2, 1),
             random_matrix<T>(work.rows, work.q_cols(), 3, 3), Matrix<T>(work.rows, work.kv_cols(), 2)};
  run(work, {h.up.operand(), h.key.operand(), h.q.accumulate(), h.kv.write()});
  return h;
}

TEST_CASE("heads of multi-latent attention turn neighbours and hold the shared key", "[kernels]") {
  for (const LatentHeads& work : kShapes) {
    INFO(describe(work));
    const Heads<double> h = run_forward<double>(work);
    const Matrix<double> q = random_matrix<double>(work.rows, work.q_cols(), 3, 3);
    const double factor = work.yarn.of_elements();
    for (std::int64_t row = 0; row < work.rows; ++row)
      for (std::int64_t head = 0; head < work.heads; ++head) {
        const std::int64_t width = work.nope + work.rope, first = head * width, up = head * (work.nope + work.value);
        for (std::int64_t i = 0; i < work.nope; ++i) {
          CHECK(h.q.at(row, first + i) == q.at(row, first + i));
          CHECK(h.kv.at(row, first + i) == h.up.at(row, up + i));
        }
        for (std::int64_t i = 0; i < work.value; ++i)
          CHECK(h.kv.at(row, work.q_cols() + head * work.value + i) == h.up.at(row, up + work.nope + i));
        for (std::int64_t i = 0; i < work.rope / 2; ++i) {
          const double angle = double(row % work.seq) * work.yarn.frequency(i, work.rope, work.base);
          const std::int64_t at = first + work.nope + 2 * i;
          const double a = h.key.at(row, 2 * i), b = h.key.at(row, 2 * i + 1);
          CHECK(h.kv.at(row, at) == Approx(factor * (a * std::cos(angle) - b * std::sin(angle))).margin(1e-14));
          CHECK(h.kv.at(row, at + 1) == Approx(factor * (a * std::sin(angle) + b * std::cos(angle))).margin(1e-14));
          CHECK(h.q.at(row, at) ==
                Approx(factor * (q.at(row, at) * std::cos(angle) - q.at(row, at + 1) * std::sin(angle))).margin(1e-14));
        }
      }
  }
}

TEST_CASE("the gradient of the heads of multi-latent attention agrees with finite differences", "[kernels]") {
  for (const LatentHeads& work : kShapes) {
    INFO(describe(work));
    Heads<double> h{random_matrix<double>(work.rows, work.up_cols(), 1, 2),
                    random_matrix<double>(work.rows, work.rope, 2, 1), Matrix<double>(work.rows, work.q_cols(), 1),
                    Matrix<double>(work.rows, work.kv_cols(), 2)};
    Matrix<double> q = random_matrix<double>(work.rows, work.q_cols(), 3, 3);
    Matrix<double> dkv = random_matrix<double>(work.rows, work.kv_cols(), 4, 1),
                   weight = random_matrix<double>(work.rows, work.q_cols(), 5), dq = weight,
                   dup(work.rows, work.up_cols(), 1), dkey(work.rows, work.rope, 1);
    LatentHeads back = work;
    back.pass = Pass::dgrad;
    run(back, {dkv.operand(), dq.accumulate(), dup.write(), dkey.write()});
    const auto value = [&] {
      Matrix<double> turned = q;
      run(work, {h.up.operand(), h.key.operand(), turned.accumulate(), h.kv.write()});
      return weighted_sum(dkv, h.kv) + weighted_sum(weight, turned);
    };
    CHECK(max_difference(dup, numeric_gradient(h.up, value)) < 1e-8);
    CHECK(max_difference(dkey, numeric_gradient(h.key, value)) < 1e-8);
    CHECK(max_difference(dq, numeric_gradient(q, value)) < 1e-8);
  }
}

TEST_CASE("yarn keeps fast pairs and slows slow ones", "[kernels]") {
  // DeepSeek-V3's yarn: 64 elements, base 10000, 40 times 4,096 positions; pairs 10 to 23 are in between.
  const YarnScaling yarn{40, 32, 1, 1, 1, 4096};
  for (std::int64_t i = 0; i < 32; ++i) {
    const double plain = std::pow(10000, -double(i) / 32), got = yarn.frequency(i, 64, 10000);
    CHECK(got == Approx(i <= 10 ? plain : i >= 23 ? plain / 40 : plain / 40 * (i - 10) / 13 + plain * (23 - i) / 13));
  }
  CHECK(yarn.of_elements() == 1);
  CHECK(yarn.of_scores() == Approx(1.3688879 * 1.3688879));
}

}  // namespace latent_kernels
}  // namespace stretto::host::testing
