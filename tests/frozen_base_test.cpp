// Tests of a frozen base: the step computes the loss and data gradients, and changes no parameter.
#include <catch2/catch.hpp>

#include "tests/training.hpp"

namespace stretto::testing {
namespace {

// Sequential, data-, tensor- and pipeline-parallel layouts.
const std::vector<Layout> kFrozenLayouts = {{1},
                                            {2},
                                            {1, 2},
                                            {1, 2, true},
                                            {1, 1, false, 2},
                                            {2, 2, true, 2, 1},
                                            {1, 1, false, 2, 3},
                                            {1, 1, false, 2, 1, "E|ttttttL"}};

Scenario frozen(Scenario scenario) {
  scenario.training.frozen_base = true;
  return scenario;
}

bool has_phase(const Schedule& schedule, Phase phase) {
  return std::any_of(schedule.operations.begin(), schedule.operations.end(),
                     [&](const Operation& operation) { return operation.phase == phase; });
}

}  // namespace

TEST_CASE("a frozen base has the loss of its parameters, which stay as they are") {
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout : kFrozenLayouts)
      for (const char* precision : {"fp64", "bf16"}) {
        if (!cases.takes_next()) continue;
        INFO(layout.text() << (llama ? " llama " : " gpt ") << precision);
        const Scenario trained = layout_scenario(layout, "plain", llama, precision);
        const Trained before = train(trained, 1, true);
        // The first step's loss is that of the initial parameters, whether they are trained or not.
        const Trained once = train(frozen(trained), 1, true), twice = train(frozen(trained), 2, true);
        CHECK(once.losses[0] == before.losses[0]);
        CHECK(twice.losses[1] > 0);
        CHECK(same_bits(once.parameters, twice.parameters));
        CHECK_FALSE(same_bits(once.parameters, before.parameters));
        CHECK(once.norms[0] == 0);
        // There are neither gradients nor optimizer state.
        for (std::size_t rank = 0; rank < once.allocated_bytes.size(); ++rank)
          CHECK(once.allocated_bytes[rank] < before.allocated_bytes[rank]);
        // Any legal order gives equal results.
        const Trained serial = train(frozen(trained), 2, false, 5);
        CHECK(serial.losses == twice.losses);
        CHECK(same_bits(serial.parameters, twice.parameters));
      }
}

TEST_CASE("a frozen base reduces nothing over dp and has no weight gradients") {
  for (const bool llama : {false, true})
    for (const Layout& layout : kFrozenLayouts)
      for (const OverlapMode& mode : overlap_modes()) {
        const Scenario scenario = layout_scenario(layout, mode.name, llama);
        if (!mode.applies(scenario.parallel)) continue;
        INFO(layout.text() << " " << mode.name);
        const Schedule schedule = build_schedule(frozen(scenario));
        plan_and_verify(schedule);
        for (const Phase phase : {Phase::wgrad, Phase::grad_sync, Phase::param_sync})
          CHECK_FALSE(has_phase(schedule, phase));
        for (const Operation& operation : schedule.operations) CHECK(kind_of(operation.work) != std::string("adamw"));
        if (layout.dp > 1 && mode.name == "overlap_grad_reduce")
          CHECK(schedule.notes.front() == "overlap_grad_reduce is off: frozen_base is on, and nothing is trained");
      }
}

TEST_CASE("a recomputed layer of a frozen base gives the same loss") {
  Scenario scenario = frozen(layout_scenario({1, 2, true}, "plain", true));
  const Trained kept = train(scenario, 1, true);
  scenario.training.recompute.granularity = Recompute::Granularity::full;
  for (const bool whole : {false, true}) {
    scenario.training.recompute.whole_layers = whole;
    CHECK(train(scenario, 1, true).losses == kept.losses);
  }
  scenario.training.norm_gradient_fusion = true;
  CHECK(train(scenario, 1, true).losses == kept.losses);
}

}  // namespace stretto::testing
