#include "model/overlap/without.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "model/overlap/overlap.hpp"
#include "tests/random_layout.hpp"

namespace stretto {
namespace {

Scenario scenario_that_sets(const std::vector<std::string>& set) {
  return parse_scenario(R"([model]
num_layers = 4
hidden_size = 64
num_attention_heads = 4
seq_length = 64
vocab_size = 128
[parallel]
data_parallel_size = 2
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 2
sequence_parallel = true
[training]
global_batch_size = 8
)",
                        "knobs", set);
}

std::vector<std::string> names_of(const std::vector<WithoutKnob>& without) {
  std::vector<std::string> names;
  for (const WithoutKnob& row : without) names.push_back(row.knob);
  return names;
}

}  // namespace

TEST_CASE("each knob that is on and acts is switched off, with what is an error without it", "[overlap]") {
  CHECK(without_each_knob(scenario_that_sets({})).empty());
  const auto without =
      without_each_knob(scenario_that_sets({"overlap.overlap_grad_reduce=true", "overlap.overlap_param_gather=true",
                                            "overlap.align_param_gather=true", "overlap.overlap_p2p_comm=true"}));
  // Without chunks align_param_gather does not act.
  CHECK(names_of(without) ==
        std::vector<std::string>{"overlap_grad_reduce", "overlap_param_gather", "overlap_p2p_comm"});
  CHECK(without[0].also_off == std::vector<std::string>{"overlap_param_gather"});
  CHECK_FALSE(without[0].overlap.overlap_param_gather);
  CHECK(without[0].overlap.overlap_p2p_comm);
  CHECK(without[1].also_off.empty());
  CHECK(without[1].overlap.overlap_grad_reduce);
  // Switches within a knob that is off are not on.
  CHECK(names_of(without_each_knob(
            scenario_that_sets({"overlap.tp_comm_overlap=true", "overlap.tp_comm_overlap_rs=false"}))) ==
        std::vector<std::string>{"tp_comm_overlap", "tp_comm_bulk_dgrad", "tp_comm_bulk_wgrad", "tp_comm_overlap_ag"});
}

TEST_CASE("what is left without a knob of a random layout is built, and no gate is closed as an error", "[overlap]") {
  int knobs = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = testing::random_layout(seed).scenario;
    for (const WithoutKnob& without : without_each_knob(scenario)) {
      ++knobs;
      Scenario changed = scenario;
      changed.overlap = without.overlap;
      INFO("seed " << seed << ", without " << without.knob);
      CHECK_FALSE(changed.overlap == scenario.overlap);
      const Gates gates = gates_of(changed);
      // The exception is a combination that Stretto compares and frameworks refuse: interleaved stages, two of them,
      // without overlap_p2p_comm.
      CHECK(std::none_of(gates.all().begin(), gates.all().end(), [](const Gate& gate) {
        return gate.kind == GateKind::error && gate.wider.empty() && gate.asked && !gate.open;
      }));
      CHECK_NOTHROW(build_schedule(changed));
    }
  }
  CHECK(knobs > 20);
}

}  // namespace stretto
