// Kernels of the router and of experts against loops that follow the definitions, and gradients against slopes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "tests/kernel_testing.hpp"

namespace stretto::host::testing {
namespace expert_kernels {

using Integers = Matrix<std::int32_t>;

std::vector<Route> routes() {
  std::vector<Route> all = {{Pass::forward, 7, 8, 3},
                            {Pass::forward, 5, 6, 1, RouterScore::softmax, true},
                            {Pass::forward, 7, 8, 3, RouterScore::softmax, true, 2.5},
                            {Pass::forward, 7, 8, 3, RouterScore::sigmoid, false, 2.5},
                            {Pass::forward, 5, 6, 1, RouterScore::sigmoid},
                            {Pass::forward, 9, 12, 4, RouterScore::softmax, false, 1, 4, 2},
                            {Pass::forward, 9, 12, 4, RouterScore::softmax, true, 1.5, 3, 2},
                            {Pass::forward, 9, 12, 4, RouterScore::sigmoid, false, 2.5, 6, 4},
                            {Pass::forward, 1, 1, 1, RouterScore::sigmoid}};
  Route z = all.front();
  z.z_scale = 0.3;
  all.push_back(z);
  return all;
}

struct Routed {
  Integers indices;
  Matrix<double> probabilities;
};
Routed run_forward(Route work, Matrix<double>& logits) {
  work.pass = Pass::forward;
  Routed routed{Integers(work.rows, work.topk), Matrix<double>(work.rows, work.topk, 1)};
  run(work, {logits.operand(), routed.indices.write(), routed.probabilities.write()});
  return routed;
}

// By the definition, in long double.
Routed routed_by_hand(const Route& work, const Matrix<double>& logits) {
  Routed routed{Integers(work.rows, work.topk), Matrix<double>(work.rows, work.topk, 1)};
  for (std::int64_t row = 0; row < work.rows; ++row) {
    std::vector<long double> score;
    long double all = 0;
    for (std::int64_t e = 0; e < work.experts; ++e) all += std::exp((long double)(logits.at(row, e)));
    for (std::int64_t e = 0; e < work.experts; ++e) {
      const long double x = logits.at(row, e);
      score.push_back(work.score == RouterScore::sigmoid ? 1 / (1 + std::exp(-x))
                      : work.pre_softmax                 ? std::exp(x) / all
                                                         : x);
    }
    std::vector<std::int64_t> may_be;
    if (work.groups == 0)
      for (std::int64_t e = 0; e < work.experts; ++e) may_be.push_back(e);
    if (work.groups > 0) {
      const std::int64_t size = work.experts / work.groups;
      std::vector<std::pair<long double, std::int64_t>> groups;
      for (std::int64_t g = 0; g < work.groups; ++g) {
        std::vector<long double> of_group(score.begin() + g * size, score.begin() + (g + 1) * size);
        std::sort(of_group.rbegin(), of_group.rend());
        long double sum = 0;
        for (std::int64_t i = 0; i < work.topk / work.group_topk; ++i) sum += of_group[std::size_t(i)];
        groups.emplace_back(-sum, g);
      }
      std::sort(groups.begin(), groups.end());
      for (std::int64_t i = 0; i < work.group_topk; ++i)
        for (std::int64_t e = 0; e < size; ++e) may_be.push_back(groups[std::size_t(i)].second * size + e);
    }
    std::sort(may_be.begin(), may_be.end(),
              [&](auto a, auto b) { return score[std::size_t(a)] > score[std::size_t(b)]; });
    std::set<std::int64_t> chosen(may_be.begin(), may_be.begin() + work.topk);
    long double sum = 0;
    for (const std::int64_t e : chosen)
      sum += work.score == RouterScore::softmax && !work.pre_softmax ? std::exp(score[std::size_t(e)])
                                                                     : score[std::size_t(e)];
    std::int64_t j = 0;
    for (const std::int64_t e : chosen) {
      const long double s = score[std::size_t(e)];
      const bool is_divided = work.score == RouterScore::sigmoid && work.topk > 1;
      routed.indices.at(row, j) = static_cast<std::int32_t>(e);
      routed.probabilities.at(row, j++) =
          double(work.scaling * (work.score == RouterScore::softmax && !work.pre_softmax ? std::exp(s) / sum
                                 : is_divided                                            ? s / sum
                                                                                         : s));
    }
  }
  return routed;
}

TEST_CASE("the router chooses and weighs experts by its definition", "[kernels]") {
  for (const Route& work : routes()) {
    INFO(describe(work));
    Matrix<double> logits = random_matrix<double>(work.rows, work.experts, 3, 2);
    const Routed by_kernel = run_forward(work, logits), by_hand = routed_by_hand(work, logits);
    CHECK(by_kernel.indices.data == by_hand.indices.data);
    CHECK(max_difference(by_kernel.probabilities, by_hand.probabilities) < 1e-14);
  }
  // The first of equal scores counts more.
  Matrix<double> equal = constant_matrix<double>(2, 5, 0.5);
  CHECK(run_forward({Pass::forward, 2, 5, 2}, equal).indices.data == std::vector<std::int32_t>{0, 1, 0, 1});
}

TEST_CASE("a bias decides who is chosen, and moves against loads", "[kernels]") {
  for (Route work : routes()) {
    if (work.score == RouterScore::softmax || work.experts == 1) continue;
    INFO(describe(work));
    work.biased = true;
    Matrix<double> logits = random_matrix<double>(work.rows, work.experts, 3), bias(1, work.experts);
    Matrix<double> probabilities(work.rows, work.topk), loads = constant_matrix<double>(1, work.experts, 0);
    Integers indices(work.rows, work.topk);
    for (std::int64_t e = 0; e < work.experts; ++e) bias.at(0, e) = e < work.experts / 2 ? 0 : 9;
    run(work, {logits.operand(), bias.operand(), indices.write(), probabilities.write()});
    run(CountLoads{work.rows, work.topk, work.experts}, {indices.operand(), loads.accumulate()});
    double all = 0, chosen_half = 0;
    for (std::int64_t e = 0; e < work.experts; ++e) all += loads.at(0, e);
    for (std::int64_t e = work.experts / 2; e < work.experts; ++e) chosen_half += loads.at(0, e);
    CHECK(all == double(work.rows * work.topk));
    CHECK(chosen_half == all);
    for (std::int64_t row = 0; row < work.rows; ++row) {
      double sum = 0, of_scores = 0;
      for (std::int64_t j = 0; j < work.topk; ++j) {
        sum += probabilities.at(row, j);
        of_scores += 1 / (1 + std::exp(-logits.at(row, indices.at(row, j))));
      }
      CHECK(sum == Approx(work.scaling * (work.topk > 1 ? 1 : of_scores)));
    }
  }
  Matrix<double> loads(2, 4), bias = constant_matrix<double>(2, 4, 1);
  loads.data = {1, 2, 3, 2, 0, 0, 0, 4};
  run(MoveBias{2, 4, 0.25}, {loads.operand(), bias.accumulate()});
  CHECK(bias.data == std::vector<double>{1.25, 1, 0.75, 1, 1.25, 1.25, 1.25, 0.75});
  Integers wrong(1, 2);
  wrong.data = {1, 4};
  Matrix<double> row = constant_matrix<double>(1, 4, 0);
  CHECK_THROWS_AS(run(CountLoads{1, 2, 4}, {wrong.operand(), row.accumulate()}), Error);
}

TEST_CASE("the router's gradient is the slope of the probabilities and of the z-loss", "[kernels]") {
  for (Route work : routes()) {
    INFO(describe(work) << ", z " << work.z_scale);
    Matrix<double> logits = random_matrix<double>(work.rows, work.experts, 3);
    Matrix<double> weight = random_matrix<double>(work.rows, work.topk, 4);
    Routed routed = run_forward(work, logits);
    Matrix<double> gradient(work.rows, work.experts, 1);
    work.pass = Pass::dgrad;
    run(work, {logits.operand(), routed.indices.operand(), weight.operand(), gradient.write()});
    const auto value = [&] {
      double loss = weighted_sum(weight, run_forward(work, logits).probabilities);
      for (std::int64_t row = 0; row < work.rows; ++row) {
        double sum = 0;
        for (std::int64_t e = 0; e < work.experts; ++e) sum += std::exp(logits.at(row, e));
        loss += work.z_scale * std::log(sum) * std::log(sum);
      }
      return loss;
    };
    CHECK(max_difference(gradient, numeric_gradient(logits, value)) < 1e-8);
  }
  Matrix<double> logits = random_matrix<double>(1, 4, 1), d = random_matrix<double>(1, 2, 2), out(1, 4);
  Integers wrong(1, 2);
  wrong.data = {1, 4};
  CHECK_THROWS_AS(run(Route{Pass::dgrad, 1, 4, 2}, {logits.operand(), wrong.operand(), d.operand(), out.write()}),
                  Error);
}

TEST_CASE("the balance loss counts tokens and has its gradient", "[kernels]") {
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid})
    for (const std::int64_t sequences : {1, 3}) {
      BalanceLoss work{Pass::forward, 12, 5, 2, score, sequences, 4, 0, {}, 0.7};
      Matrix<double> logits = random_matrix<double>(12, 5, 3, 1), counts(sequences, 5);
      run(work, {logits.operand(), counts.write()});
      double all = 0;
      for (const double count : counts.data) all += count;
      CHECK(all == 24);
      std::vector<double> by_hand(std::size_t(sequences * 5), 0);
      for (std::int64_t row = 0; row < 12; ++row)
        for (std::int64_t e = 0; e < 5; ++e) {
          int better = 0;
          for (std::int64_t other = 0; other < 5; ++other) better += logits.at(row, other) > logits.at(row, e);
          if (better < 2) ++by_hand[std::size_t((sequences == 1 ? 0 : row / 4) * 5 + e)];
        }
      CHECK(counts.data == by_hand);
      Matrix<double> gradient = constant_matrix<double>(12, 5, 0.25);
      work.pass = Pass::dgrad;
      run(work, {logits.operand(), counts.operand(), gradient.accumulate()});
      const auto value = [&] {
        double loss = 0;
        for (std::int64_t row = 0; row < 12; ++row) {
          double sum = 0;
          std::vector<double> p;
          for (std::int64_t e = 0; e < 5; ++e) {
            const double x = logits.at(row, e);
            p.push_back(score == RouterScore::softmax ? std::exp(x) : 1 / (1 + std::exp(-x)));
            sum += p.back();
          }
          for (std::int64_t e = 0; e < 5; ++e)
            loss += work.scale * p[std::size_t(e)] / sum * counts.at(sequences == 1 ? 0 : row / 4, e);
        }
        return loss;
      };
      Matrix<double> slope = numeric_gradient(logits, value);
      slope.for_each([](std::int64_t, std::int64_t, double& v) { v += 0.25; });
      CHECK(max_difference(gradient, slope) < 1e-8);
    }
}

struct Sorted {
  Integers offsets, positions;
};
Sorted sort(Integers& indices, std::int64_t experts) {
  Sorted sorted{Integers(1, experts + 1), Integers(indices.rows, indices.cols)};
  run(SortTokens{indices.rows, indices.cols, experts},
      {indices.operand(), sorted.offsets.write(), sorted.positions.write()});
  return sorted;
}

TEST_CASE("tokens are sorted by expert, those of one expert by row, and come back", "[kernels]") {
  Integers indices(4, 2);
  indices.data = {1, 3, 0, 3, 1, 3, 0, 1};  // nobody has expert 2
  Sorted sorted = sort(indices, 4);
  CHECK(sorted.offsets.data == std::vector<std::int32_t>{0, 2, 5, 5, 8});
  CHECK(sorted.positions.data == std::vector<std::int32_t>{2, 5, 0, 6, 3, 7, 1, 4});
  Matrix<double> x = random_matrix<double>(4, 6, 1, 2), rows(8, 6, 1), sums = constant_matrix<double>(4, 6, 1.0);
  run(Permute{Pass::forward, 4, 2, 6}, {sorted.positions.operand(), x.operand(), rows.write()});
  run(Permute{Pass::backward, 4, 2, 6}, {sorted.positions.operand(), rows.operand(), sums.accumulate()});
  for (std::int64_t token = 0; token < 4; ++token)
    for (std::int64_t c = 0; c < 6; ++c) CHECK(sums.at(token, c) == Approx(1 + 2 * x.at(token, c)));
  Matrix<double> each(4, 6, 3), back(4, 6), apart(8, 3);
  each = random_matrix<double>(4, 6, 2, 3);
  run(Permute{Pass::forward, 4, 2, 3, true}, {sorted.positions.operand(), each.operand(), apart.write()});
  CHECK(apart.at(5, 2) == each.at(0, 5));
  run(Permute{Pass::backward, 4, 2, 3, true}, {sorted.positions.operand(), apart.operand(), back.write()});
  CHECK(max_difference(back, each) == 0);
  for (const std::int32_t wrong : {-1, 4}) {
    indices.data[3] = wrong;
    CHECK_THROWS_AS(sort(indices, 4), Error);
  }
  sorted.positions.data[3] = 8;
  CHECK_THROWS_AS(run(Permute{Pass::forward, 4, 2, 6}, {sorted.positions.operand(), x.operand(), rows.write()}), Error);
}

TEST_CASE("copies for some experts alone, and padded rows", "[kernels]") {
  Integers indices(4, 2), positions(4, 2);
  indices.data = {1, 3, 0, 3, 1, 3, 0, 1};
  Matrix<double> x = random_matrix<double>(4, 3, 1, 2);
  Integers offsets(1, 3);
  SortTokens some{4, 2, 4};
  some.local = 2, some.capacity = 6, some.first = 1;
  run(some, {indices.operand(), offsets.write(), positions.write()});
  CHECK(offsets.data == std::vector<std::int32_t>{0, 3, 3});
  CHECK(positions.data == std::vector<std::int32_t>{0, -1, -1, -1, 1, -1, -1, 2});
  Permute move{Pass::forward, 4, 2, 3};
  move.rows = 4, move.capacity = 6;
  Matrix<double> rows = constant_matrix<double>(6, 3, 7.0), sums(4, 3);
  run(move, {positions.operand(), x.operand(), rows.write()});
  CHECK(rows.at(1, 2) == x.at(2, 2));
  CHECK(rows.at(3, 0) == 7);
  move.pass = Pass::backward;
  run(move, {positions.operand(), rows.operand(), sums.write()});
  for (std::int64_t token = 0; token < 4; ++token) CHECK(sums.at(token, 1) == (token == 1 ? 0 : x.at(token, 1)));
  some.capacity = 2;
  CHECK_THROWS_AS(run(some, {indices.operand(), offsets.write(), positions.write()}), Error);

  SortTokens padded{4, 2, 4, 3};
  run(padded, {indices.operand(), positions.write()});
  CHECK(positions.data == std::vector<std::int32_t>{3, 9, 0, 10, 4, 11, 1, 5});
  Permute pad{Pass::forward, 4, 2, 3};
  pad.rows = 12, pad.padded = true;
  Matrix<double> all = constant_matrix<double>(12, 3, 7.0);
  run(pad, {positions.operand(), x.operand(), all.write()});
  CHECK(all.at(10, 1) == x.at(1, 1));
  for (const std::int64_t empty : {2, 6, 7, 8}) CHECK(all.at(empty, 1) == 0);
  padded.each = 2;
  CHECK_THROWS_AS(run(padded, {indices.operand(), positions.write()}), Error);
  // Two experts alone, with as many rows each.
  padded.each = 3, padded.local = 2, padded.first = 1;
  run(padded, {indices.operand(), positions.write()});
  CHECK(positions.data == std::vector<std::int32_t>{0, -1, -1, -1, 1, -1, -1, 2});
  padded.each = 2;
  CHECK_THROWS_WITH(run(padded, {indices.operand(), positions.write()}), Catch::Contains("expert 1 gets 3 rows"));
  // Two ranks with two experts each send two rows for each expert.
  SortByExpert sort{Pass::forward, 2, 4, 2, 8, 8, 1, 2, false, 2};
  Matrix<double> received(8, 1), sorted(8, 1);
  for (std::int64_t row = 0; row < 8; ++row) received.at(row, 0) = double(row);
  run(sort, {received.operand(), sorted.write()});
  CHECK(sorted.data == std::vector<double>{0, 1, 4, 5, 2, 3, 6, 7});
}

TEST_CASE("grouped products are a product a group", "[kernels]") {
  host::prepare_blas();
  const std::int64_t groups = 4, rows = 9, n = 5, k = 3;
  Integers offsets(1, groups + 1);
  for (const std::vector<std::int32_t>& begins : {std::vector<std::int32_t>{0, 2, 2, 8, 9}, {0, 9, 9, 9, 9}}) {
    offsets.data = begins;
    Matrix<double> x = random_matrix<double>(rows, k, 1, 2), w = random_matrix<double>(groups * n, k, 2, 1),
                   dy = random_matrix<double>(rows, n, 3), y(rows, n, 1), dx(rows, k, 2),
                   dw = constant_matrix<double>(groups * n, k, 0.5);
    run(GroupedGemm{Pass::forward, groups, rows, n, k}, {x.operand(), w.operand(), offsets.operand(), y.write()});
    run(GroupedGemm{Pass::dgrad, groups, rows, n, k}, {dy.operand(), w.operand(), offsets.operand(), dx.write()});
    run(GroupedGemm{Pass::wgrad, groups, rows, n, k}, {dy.operand(), x.operand(), offsets.operand(), dw.accumulate()});
    Matrix<double> ey = constant_matrix<double>(rows, n, 0.0), edx = constant_matrix<double>(rows, k, 0.0),
                   edw = constant_matrix<double>(groups * n, k, 0.5);
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t row = begins[std::size_t(g)]; row < begins[std::size_t(g + 1)]; ++row)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < k; ++j) {
            ey.at(row, i) += x.at(row, j) * w.at(g * n + i, j);
            edx.at(row, j) += dy.at(row, i) * w.at(g * n + i, j);
            edw.at(g * n + i, j) += dy.at(row, i) * x.at(row, j);
          }
    CHECK(max_difference(y, ey) < 1e-14);
    CHECK(max_difference(dx, edx) < 1e-14);
    CHECK(max_difference(dw, edw) < 1e-14);
  }
  Matrix<double> equal = random_matrix<double>(8, k, 1), both = random_matrix<double>(4 * n, k, 2), there(8, n),
                 here(8, n);
  offsets.data = {0, 2, 4, 6, 8};
  GroupedGemm pairs{Pass::forward, 4, 8, n, k};
  run(pairs, {equal.operand(), both.operand(), offsets.operand(), there.write()});
  pairs.equal = true;
  run(pairs, {equal.operand(), both.operand(), here.write()});
  CHECK(max_difference(here, there) == 0);
  offsets.data = {0, 2, 1, 8, 9};
  Matrix<double> x = random_matrix<double>(rows, k, 1), w = random_matrix<double>(groups * n, k, 2), y(rows, n);
  CHECK_THROWS_AS(
      run(GroupedGemm{Pass::forward, groups, rows, n, k}, {x.operand(), w.operand(), offsets.operand(), y.write()}),
      Error);
}

TEST_CASE("weighted activations and gates have their slopes", "[kernels]") {
  for (const bool gated : {false, true}) {
    const std::int64_t rows = 3, cols = 5;
    WeightedActivation work{Pass::forward, rows, cols, gated};
    Matrix<double> x = random_matrix<double>(rows, work.in_cols(), 1, 1), p = random_matrix<double>(rows, 1, 2),
                   dy = random_matrix<double>(rows, cols, 3, 2), dx(rows, work.in_cols(), 1), dp(rows, 1);
    const auto value = [&] {
      Matrix<double> y(rows, cols);
      run(work, {x.operand(), p.operand(), y.write()});
      return weighted_sum(dy, y);
    };
    WeightedActivation backward = work;
    backward.pass = Pass::dgrad;
    run(backward, {dy.operand(), x.operand(), p.operand(), dx.write(), dp.write()});
    CHECK(max_difference(dx, numeric_gradient(x, value)) < 1e-8);
    CHECK(max_difference(dp, numeric_gradient(p, value)) < 1e-8);
  }
  Matrix<double> x = random_matrix<double>(4, 6, 1, 1), logit = random_matrix<double>(4, 1, 2),
                 dy = random_matrix<double>(4, 6, 3, 2), dx(4, 6), d_logit(4, 1);
  const auto value = [&] {
    Matrix<double> y(4, 6);
    run(GateRows{Pass::forward, 4, 6}, {x.operand(), logit.operand(), y.write()});
    return weighted_sum(dy, y);
  };
  run(GateRows{Pass::dgrad, 4, 6}, {dy.operand(), x.operand(), logit.operand(), dx.write(), d_logit.write()});
  CHECK(max_difference(dx, numeric_gradient(x, value)) < 1e-8);
  CHECK(max_difference(d_logit, numeric_gradient(logit, value)) < 1e-8);
}

}  // namespace expert_kernels
}  // namespace stretto::host::testing
