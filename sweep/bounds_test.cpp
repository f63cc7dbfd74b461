#include "sweep/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "predict/predict_step.hpp"
#include "sweep/evaluate.hpp"
#include "tests/cases.hpp"
#include "tests/random_gpu_scenario.hpp"

namespace stretto::sweep {

TEST_CASE("closed forms are below step and memory of random layouts, and near them", "[sweep]") {
  const auto cases =
      static_cast<int>(testing::from_environment("STRETTO_BOUNDS", testing::share_of(160 / int{testing::kCaseStride})));
  const auto first = testing::from_environment("STRETTO_BOUNDS_SEED", 1);
  const bool prints = std::getenv("STRETTO_BOUNDS_PRINT") != nullptr;
  std::vector<double> of_steps, of_bytes;
  int compared = 0;
  for (std::uint64_t seed = first; compared < cases; ++seed) {
    const std::string text = testing::random_gpu_scenario(seed);
    CAPTURE(seed, text);
    Scenario scenario;
    predict::PredictedStep step;
    sim::Platform platform;
    try {
      scenario = parse_scenario(text, "s.toml");
      platform = sim::read_platform(scenario.platform);
      step = predict::predict_step(scenario, platform);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::input);
      continue;
    }
    ++compared;
    Families families;
    const std::vector<std::string> set = {};
    const Families::Member member{scenario, platform, set};
    const TimeFamily* times = families.times(member);
    const MemoryFamily* memory = families.memory(member);
    REQUIRE(times != nullptr);
    REQUIRE(memory != nullptr);
    const double bound_ms = least_step_ms(scenario, *times), bytes = least_bytes(scenario, *memory);
    const double step_ms = step.prediction.step_ms, needed = double(step.prediction.memory.predicted_bytes());
    CHECK(bound_ms <= step_ms);
    CHECK(bytes <= needed);
    CHECK(least_state_bytes(scenario, families.elements(member)) <= needed);
    of_steps.push_back(bound_ms / step_ms);
    of_bytes.push_back(bytes / needed);
    if (prints)
      std::cout << fmt::format("seed {} step {:.3f} memory {:.3f} ({:.2f} ms, {:.2f} GiB)\n", seed, of_steps.back(),
                               of_bytes.back(), step_ms, needed / (1 << 30));
  }
  std::sort(of_steps.begin(), of_steps.end());
  std::sort(of_bytes.begin(), of_bytes.end());
  const auto half = of_steps.size() / 2;
  CAPTURE(of_steps.front(), of_steps[half], of_bytes.front(), of_bytes[half]);
  if (prints)
    std::cout << fmt::format("step {:.3f} {:.3f} memory {:.3f} {:.3f}\n", of_steps.front(), of_steps[half],
                             of_bytes.front(), of_bytes[half]);
  CHECK(of_steps[half] > 0.6);
  CHECK(of_bytes[half] > 0.75);
  CHECK(of_bytes.front() > 0.25);
}

}  // namespace stretto::sweep
