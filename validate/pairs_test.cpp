#include "validate/pairs.hpp"

#include <catch2/catch.hpp>

namespace stretto::validate {
namespace {

ValidatedStep step(std::int64_t tp, std::int64_t pp, std::int64_t dp, double measured_s, double predicted_s) {
  ValidatedStep step;
  step.scenario.parallel.tensor_model_parallel_size = tp;
  step.scenario.parallel.pipeline_model_parallel_size = pp;
  step.scenario.parallel.data_parallel_size = dp;
  step.published.gpus = tp * pp * dp;
  step.published.step_s = measured_s;
  step.predicted_s = {predicted_s, predicted_s, predicted_s};
  return step;
}

}  // namespace

TEST_CASE("pairs differ in one setting, or trade two of equal GPUs", "[compare]") {
  const std::vector<ValidatedStep> steps = {step(1, 1, 4, 1, 1), step(2, 1, 4, 0.6, 0.63), step(2, 1, 2, 1.2, 0.9)};
  // Steps 0 and 1 differ in tp, 1 and 2 in dp, 0 and 2 trade tp for dp.
  const std::vector<PairKind> kinds = pairs_of(steps, {0, 1, 2});
  REQUIRE(kinds.size() == 3);
  for (const PairKind& kind : kinds) {
    INFO(kind.what);
    CHECK(kind.pairs == 1);
    CHECK(kind.apart == 1);
    if (kind.what == "tp") {
      CHECK(kind.right_sign == 1);
      CHECK(kind.median_error == Approx(1 - 0.6 / 0.63).epsilon(0.1));
      CHECK(kind.within == 0);
    } else if (kind.what == "dp") {
      CHECK(kind.right_sign == 1);
    } else {
      CHECK(kind.what == "tp ↔ dp");
      CHECK(kind.right_sign == 0);
    }
  }
  std::vector<ValidatedStep> other = steps;
  other[1].scenario.model.hidden_size *= 2;
  CHECK(pairs_of(other, {0, 1}).empty());
  CHECK(pairs_of({steps[0], steps[0]}, {0, 1}).empty());
  other = steps;
  other[1].published.source = "another release";
  CHECK(pairs_of(other, {0, 1}).empty());
  // Releases of one project, in containers: what differs is measured alone.
  other = {step(2, 1, 4, 1.0, 1.1), step(2, 1, 4, 1.04, 1.1), step(2, 1, 4, 2.0, 1.1)};
  other[0].published.source = "P@1:archive.md container 25.11";
  other[1].published.source = "P@1:summary.md container 26.02";
  other[2].published.source = "Q@1:summary.md container 26.02";
  REQUIRE(pairs_of(other, {0, 1, 2}).size() == 1);
  CHECK(pairs_of(other, {0, 1, 2}).front().what == "container");
  CHECK(pairs_of(other, {0, 1, 2}).front().median_error == Approx(0.04));
  for (ValidatedStep& with_experts : other) with_experts.scenario.model.experts.num_moe_experts = 8;
  other[1].scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::flex;
  CHECK(pairs_of(other, {0, 1, 2}).empty());
}

TEST_CASE("regret is what the layout that is predicted best costs over the best one", "[compare]") {
  std::vector<ValidatedStep> steps = {step(1, 1, 4, 1.0, 1.3), step(2, 1, 2, 1.1, 1.0), step(4, 1, 1, 2.0, 2.0)};
  CHECK(ranking_of(steps, {0, 1, 2}).choices == 0);  // too few layouts
  steps.push_back(step(1, 4, 1, 1.5, 1.5));
  const Ranking ranking = ranking_of(steps, {0, 1, 2, 3});
  CHECK(ranking.choices == 1);
  CHECK(ranking.best == 0);
  CHECK(ranking.good == 0);
  CHECK(ranking.mean == Approx(0.1));
  CHECK(ranking.random_mean == Approx((0 + 0.1 + 1.0 + 0.5) / 4));
  steps[0].predicted_s[2] = 0.9;
  CHECK(ranking_of(steps, {0, 1, 2, 3}).best == 1);
}

}  // namespace stretto::validate
