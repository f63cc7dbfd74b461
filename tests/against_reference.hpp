#pragma once
// Trains a tiny model for a step and compares loss and every gradient with those of tests/experts_reference.hpp.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/experts_reference.hpp"
#include "tests/training.hpp"

namespace stretto::testing::experts {

// Routers with larger weights, so that no two scores are nearly equal and loads differ.
inline void change(exec::FullTensor& tensor) {
  const double much = tensor.name.find("router") != std::string::npos ? 2 : 0.2;
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] += much * normal(99, stream_of(tensor.name), i);
}

inline Scenario scenario_of(const Transformer& model, std::int64_t micro_batch) {
  Scenario scenario = tiny_scenario(1, "plain", "fp64", 4, micro_batch);
  scenario.model = model;
  return scenario;
}

// All samples of the first step by micro-batch, [micro-batch][sequence][position].
using Ids = std::vector<std::vector<std::vector<std::int32_t>>>;
inline std::pair<Ids, Ids> batch_of(const Scenario& scenario) {
  const std::int64_t seq = scenario.model.seq_length, batch = scenario.training.global_batch_size,
                     size = scenario.training.micro_batch_size;
  std::vector<std::int32_t> tokens(std::size_t(seq * batch)), targets(tokens.size());
  exec::fill_batch(tiny_tokens(scenario.model.vocab_size),
                   {seq, batch, scenario.model.vocab_size, scenario.training.seed}, 0, 0, tokens, targets);
  std::pair<Ids, Ids> result;
  for (const auto& [from, to] : {std::pair{&tokens, &result.first}, std::pair{&targets, &result.second}})
    for (std::int64_t sample = 0; sample < batch; ++sample) {
      if (sample % size == 0) to->emplace_back();
      to->back().emplace_back(from->begin() + sample * seq, from->begin() + (sample + 1) * seq);
    }
  return result;
}

inline void check_against_reference(const Scenario& scenario) {
  std::vector<exec::FullTensor> weights;
  const Trained trained = train(scenario, 1, false, 1, [&](exec::FullTensor& tensor) {
    change(tensor);
    weights.push_back(tensor);
  });
  const auto [tokens, targets] = batch_of(scenario);
  const Result expected = Reference(scenario, weights).run(tokens, targets);
  REQUIRE(expected.smallest_gap > 1e-9);
  CHECK(trained.losses.front() == Approx(expected.loss).epsilon(1e-12));
  REQUIRE(trained.gradients.size() == expected.gradients.size());
  std::vector<exec::FullTensor> gradients = trained.gradients;
  for (exec::FullTensor& tensor : gradients) {
    INFO(tensor.name);
    const std::string name = tensor.name.substr(tensor.name.find("grad.") == 0 ? 5 : 0);
    REQUIRE(expected.gradients.contains(name));
    tensor.values = expected.gradients.at(name);
  }
  CHECK(worst_relative_difference(trained.gradients, gradients) < 1e-10);
  // A bias moves against the load.
  for (const exec::FullTensor& tensor : trained.parameters) {
    if (!tensor.name.ends_with("router.bias")) continue;
    const auto before =
        std::find_if(weights.begin(), weights.end(), [&](const auto& w) { return w.name == tensor.name; });
    const std::vector<double>& loads = expected.loads.at(tensor.name.substr(0, tensor.name.find("router")));
    const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / double(loads.size());
    for (std::size_t e = 0; e < loads.size(); ++e) {
      const double sign = loads[e] < mean ? 1 : loads[e] > mean ? -1 : 0;
      CHECK(tensor.values[e] == Approx(before->values[e] + scenario.model.experts.moe_router_bias_update_rate * sign));
    }
  }
}

}  // namespace stretto::testing::experts
