// Tests that every mode trains what the plain schedule on one rank trains.
#include <catch2/catch.hpp>

#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

constexpr int kParitySteps = 3;

void check_against_one_rank(const std::vector<std::int64_t>& sizes, bool threaded, bool llama = false) {
  SingleRank single(kParitySteps);
  for (const std::int64_t ranks : sizes)
    for (const OverlapMode& mode : data_parallel_modes()) {
      INFO(mode.name << " at " << ranks << " ranks");
      const Scenario scenario = tiny_scenario(ranks, mode.name);
      single.check(llama ? with_llama(scenario) : scenario, threaded);
    }
}

}  // namespace

TEST_CASE("fp64: every mode at 1, 2, 3, 4, 8 ranks equals the single rank, serially") {
  check_against_one_rank({1, 2, 3, 4, 8}, false);
}
TEST_CASE("fp64: every mode at 1, 2, 3, 4, 8 ranks equals the single rank, on threads") {
  check_against_one_rank({1, 2, 3, 4, 8}, true);
}
TEST_CASE("fp64: Llama's style in every mode at 1, 2, 3 ranks equals the single rank") {
  check_against_one_rank({1, 2, 3}, false, true);
  check_against_one_rank({1, 2, 3}, true, true);
}

TEST_CASE("fp32: every mode is within 1e-5 of the single rank") {
  // The test takes one step: later steps amplify rounding through Adam, whose first updates are ±lr whatever the
  // gradient's size.
  const Trained reference = train(tiny_scenario(1, "plain", "fp32"), 1, true);
  for (const std::int64_t ranks : {2, 3, 4, 8})
    for (const OverlapMode& mode : data_parallel_modes()) {
      INFO(mode.name << " at " << ranks << " ranks");
      const Trained trained = train(tiny_scenario(ranks, mode.name, "fp32"), 1, true);
      CHECK(trained.losses.back() == Approx(reference.losses.back()).epsilon(1e-5));
      CHECK(worst_relative_difference(trained.gradients, reference.gradients) < 1e-5);
    }
}

TEST_CASE("modes that only move operations give the same bits") {
  // Clipping is off, because the norm is summed bucket by bucket and buckets differ between the modes.
  for (const auto& [ranks, precision] : {std::pair{2, "fp32"}, std::pair{3, "fp32"}, std::pair{3, "bf16"}}) {
    auto run = [ranks = ranks, precision = precision](const std::string& mode, bool threaded) {
      Scenario scenario = tiny_scenario(ranks, mode, precision);
      scenario.training.clip_grad = 0;
      return train(scenario, kParitySteps, threaded);
    };
    const Trained plain = run("plain", false);
    for (const OverlapMode& mode : data_parallel_modes())
      for (const bool threaded : {false, true}) {
        INFO(mode.name << " at " << ranks << " ranks, " << precision << ", threaded " << threaded);
        const Trained trained = run(mode.name, threaded);
        CHECK(trained.losses == plain.losses);
        CHECK(same_bits(trained.gradients, plain.gradients));
        CHECK(same_bits(trained.parameters, plain.parameters));
      }
  }
}

TEST_CASE("gradient reduction in bf16 stays within bf16's rounding") {
  Scenario scenario = tiny_scenario(4, "overlap_param_gather", "fp32");
  const Trained exact = train(scenario, 1, true);
  scenario.overlap.grad_reduce_in_fp32 = false;
  const Trained rounded = train(scenario, 1, true);
  const double difference = worst_relative_difference(rounded.gradients, exact.gradients);
  CHECK(difference > 0);          // rounding did happen
  CHECK(difference < 1.0 / 128);  // two roundings of 8 bits: each addend and the sum
}

TEST_CASE("micro-batch size does not change what is trained") {
  const Trained reference = train(tiny_scenario(1, "plain"), 2, false);
  for (const std::int64_t micro_batch : {2, 3, 4}) {
    const Trained trained = train(tiny_scenario(2, "overlap_param_gather", "fp64", 24, micro_batch), 2, true);
    CHECK(worst_relative_difference(trained.gradients, reference.gradients) < 1e-10);
  }
}

}  // namespace stretto::testing
