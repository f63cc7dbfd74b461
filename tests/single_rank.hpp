#pragma once
#include <catch2/catch.hpp>
#include <span>

#include "tests/training.hpp"

namespace stretto::testing {

// Trains every layout in every mode that acts in it, some of them on threads, and compares with a single rank's
// training of `single`, whose model is that of the layouts.
inline void check_against_single_rank(const Scenario& single, std::span<const Layout> layouts, bool threaded,
                                      bool llama) {
  constexpr int kSteps = 3;
  const Trained reference = train(single, kSteps, false);
  REQUIRE(std::isfinite(reference.losses.back()));
  Cases cases(threaded ? kThreadedStride : 1);
  for (const Layout& layout : layouts)
    for (const OverlapMode& mode : overlap_modes()) {
      const Scenario scenario = layout_scenario(layout, mode.name, llama);
      if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
      INFO(layout.text() << ", " << mode.name << (llama ? ", llama" : ", gpt"));
      const Trained trained = train(scenario, kSteps, threaded);
      for (int step = 0; step < kSteps; ++step) {
        CHECK(trained.losses[step] == Approx(reference.losses[step]).epsilon(1e-10));
        CHECK(trained.norms[step] == Approx(reference.norms[step]).epsilon(1e-10));
      }
      CHECK(worst_relative_difference(trained.gradients, reference.gradients) < 1e-10);
      // AdamW divides by |g| + 1e-8, which magnifies the rounding of gradients that are zero in exact arithmetic (those
      // of the biases of k).
      CHECK(worst_relative_difference(trained.parameters, reference.parameters) < 1e-8);
    }
}

}  // namespace stretto::testing
