#include "exec/text/forward.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "exec/data.hpp"
#include "tests/small_mixture.hpp"
#include "tests/training.hpp"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Returns the loss of one sequence, token by token: each prefix of it is given alone.
double loss_by_prefixes(const Scenario& scenario, std::int64_t length) {
  exec::Forward forward(scenario, length);
  exec::initialise_state(forward.schedule(), scenario, forward.memory_of());
  const std::int64_t seq = scenario.model.seq_length;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq)), targets = tokens;
  const exec::Sampling sampling{seq, 1, scenario.model.vocab_size, scenario.training.seed};
  exec::fill_batch(tiny_tokens(scenario.model.vocab_size), sampling, 0, 0, tokens, targets);
  double sum = 0;
  for (std::size_t place = 0; place < tokens.size(); ++place) {
    const std::vector<double> logits = forward.logits_after(std::span(tokens).first(place + 1));
    const double most = *std::max_element(logits.begin(), logits.end());
    double of_all = 0;
    for (const double logit : logits) of_all += std::exp(logit - most);
    sum += most + std::log(of_all) - logits[static_cast<std::size_t>(targets[place])];
  }
  return sum / double(seq);
}

Scenario one_sequence(Scenario scenario) {
  scenario.training.global_batch_size = scenario.training.micro_batch_size = 1;
  return scenario;
}

}  // namespace

TEST_CASE("The forward pass gives each token what the loss of a training step has seen") {
  const Scenario tiny = one_sequence(tiny_scenario(1, "plain"));
  std::vector<Scenario> scenarios = {tiny, one_sequence(with_llama(tiny))};
  for (const Mixture mixture : {Mixture::sigmoid, Mixture::latent}) {
    Scenario& scenario = scenarios.emplace_back(small_mixture({}, 1, mixture, "plain", "fp64", 1));
    scenario.model.experts.moe_z_loss_coeff = scenario.model.experts.moe_aux_loss_coeff = 0;  // part of the loss
  }
  for (const Scenario& scenario : scenarios)
    CHECK(loss_by_prefixes(scenario, scenario.model.seq_length) ==
          Approx(train(scenario, 1, true).losses.front()).epsilon(1e-12));
  for (const char* precision : {"fp32", "bf16"}) {
    const Scenario scenario = one_sequence(with_llama(tiny_scenario(1, "plain", precision)));
    CHECK(loss_by_prefixes(scenario, scenario.model.seq_length) ==
          Approx(train(scenario, 1, true).losses.front()).epsilon(1e-5));
  }
}

TEST_CASE("The forward pass has no dropout, whatever the scenario's layout") {
  const Scenario tiny = one_sequence(tiny_scenario(1, "plain"));
  Scenario other = tiny;
  other.model.hidden_dropout = 0.5;
  other.parallel.data_parallel_size = 3;
  other.parallel.tensor_model_parallel_size = 3;
  other.training.global_batch_size = 6;
  CHECK(loss_by_prefixes(other, 7) == loss_by_prefixes(tiny, 7));
}
