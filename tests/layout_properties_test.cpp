// Tests of the comparison of random layouts: rounding passes, however much a model magnifies it, and mistakes fail.
#include "tests/layout_properties.hpp"

#include <catch2/catch.hpp>

#include "tests/draw.hpp"

namespace stretto::testing {
namespace {

constexpr int kSteps = 2;

// One head of two elements: the norm sees the difference of two numbers; some pairs are nearly equal.
Scenario magnifies_rounding() {
  return parse_scenario(R"([model]
num_layers = 4
num_attention_heads = 1
hidden_size = 2
ffn_hidden_size = 7
seq_length = 7
max_position_embeddings = 13
vocab_size = 38
position_embedding_type = "rope"
use_rope_scaling = true
add_bias_linear = false
untie_embeddings_and_output_weights = true
[parallel]
pipeline_model_parallel_size = 2
[training]
micro_batch_size = 1
global_batch_size = 42
precision = "fp64"
train_iters = 5
lr = 0.003
min_lr = 0.001
lr_decay_iters = 2
adam_beta2 = 0.5
adam_eps = 1e-4
init_method_std = 0.2
seed = 470
)",
                        "magnifies rounding");
}

Scenario magnifies_nothing() { return layout_scenario({2}, "plain", false); }

Trained train_changed(const Scenario& scenario, const std::function<void(Operation&)>& change) {
  Schedule schedule = build_schedule(scenario);
  for (Operation& operation : schedule.operations) change(operation);
  return train_schedule(schedule, plan_memory(schedule), scenario, kSteps, false);
}

// All gradients are too large by a share of themselves.
Trained with_wrong_scale(const Scenario& scenario, double by) {
  return train_changed(scenario, [&](Operation& operation) {
    if (auto* loss = std::get_if<CrossEntropy>(&operation.work)) loss->scale *= 1 + by;
  });
}

// For one weight in each layer only the last micro-batch of a step counts.
Trained with_lost_contributions(const Scenario& scenario) {
  int lost = 0;
  Trained trained = train_changed(scenario, [&](Operation& operation) {
    if (operation.name != "fc2.wgrad") return;
    operation.accesses.back().mode = AccessMode::write;
    ++lost;
  });
  REQUIRE(lost > 0);
  return trained;
}

}  // namespace

TEST_CASE("a layout may differ from one rank by what rounding comes to in its model") {
  const Scenario scenario = magnifies_rounding();
  const Trained plain = train(scenario, kSteps, false);
  double most = 0;
  for (std::uint64_t draw = 100; draw < 106; ++draw) {
    Draw signs(draw);
    const Trained moved = train(scenario, kSteps, false, 1, [&](exec::FullTensor& weights) {
      for (double& weight : weights.values) weight *= signs.coin() ? 1 + 0x1p-52 : 1 - 0x1p-52;
    });
    CHECK(differences_from_one_rank(scenario, moved).empty());
    most = std::max(most, worst_relative_difference(moved.gradients, plain.gradients));
  }
  CHECK(most > 1e-10);  // otherwise the test is meaningless
}

TEST_CASE("a mistake is found where a model magnifies rounding") {
  const Scenario scenario = magnifies_rounding();
  CHECK(differences_from_one_rank(scenario, with_wrong_scale(scenario, 0)).empty());
  CHECK_FALSE(differences_from_one_rank(scenario, with_wrong_scale(scenario, 1e-7)).empty());
  CHECK_FALSE(differences_from_one_rank(scenario, with_lost_contributions(scenario)).empty());
}

TEST_CASE("a mistake as small as what a model makes of rounding is found where none does") {
  const Scenario scenario = magnifies_nothing();
  CHECK(differences_from_one_rank(scenario, with_wrong_scale(scenario, 0)).empty());
  CHECK_FALSE(differences_from_one_rank(scenario, with_wrong_scale(scenario, 2e-10)).empty());
  CHECK_FALSE(differences_from_one_rank(scenario, with_lost_contributions(scenario)).empty());
}

TEST_CASE("what is not a number is a difference") {
  const Scenario scenario = magnifies_nothing();
  Trained trained = train(scenario, kSteps, false);
  SECTION("a loss") { trained.losses[0] = NAN; }
  SECTION("a norm") { trained.norms[1] = NAN; }
  SECTION("a gradient") { trained.gradients.front().values.front() = NAN; }
  SECTION("a parameter") { trained.parameters.back().values.back() = NAN; }
  CHECK(differences_from_one_rank(scenario, trained).size() == 1);
}

}  // namespace stretto::testing
