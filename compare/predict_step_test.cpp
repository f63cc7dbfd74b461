#include "compare/predict_step.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

using namespace stretto;
using namespace stretto::compare;

namespace {

Scenario of_ranks(std::int64_t dp) {
  return parse_scenario(R"(platform = "h100-sxm"
[model]
num_layers = 2
hidden_size = 1024
num_attention_heads = 16
seq_length = 1024
vocab_size = 32000
[training]
precision = "bf16"
)",
                        "many", {"parallel.data_parallel_size=" + std::to_string(dp)});
}

}  // namespace

TEST_CASE("a card's rate that may be meant in Gbit/s is noted", "[predict]") {
  const Scenario scenario = of_ranks(16);
  sim::Platform platform = sim::read_platform(scenario.platform);
  for (const double GBps : {50.0, 400.0}) {
    platform.accelerator->network.GBps.value = GBps;
    const std::vector<std::string> notes = predict_step(scenario, platform).prediction.notes;
    CHECK(std::count(notes.begin(), notes.end(), "[network] GBps = 400 is 3200 Gbit/s a GPU: is it meant in Gbit/s?") ==
          (GBps > 200));
  }
}

TEST_CASE("operations that take far longer than any that was calibrated are noted", "[predict]") {
  sim::Platform host =
      sim::read_platform((std::filesystem::path(__FILE__).parent_path() / "../tests/golden/host.toml").string());
  const auto extrapolated = [&](std::int64_t hidden) {
    const Scenario scenario = parse_scenario(R"([model]
num_layers = 1
num_attention_heads = 1
seq_length = 64
vocab_size = 64
)",
                                             "large", {"model.hidden_size=" + std::to_string(hidden)});
    std::vector<std::string> found;
    for (const std::string& note : predict_step(scenario, host).prediction.notes)
      if (note.find("extrapolated") != std::string::npos) found.push_back(note);
    return found;
  };
  CHECK(extrapolated(4096).empty());  // nobody said what was calibrated
  for (auto& [key, fit] : host.costs) fit.largest_us = 100'000;
  CHECK(extrapolated(64).empty());
  REQUIRE(extrapolated(16384).size() == 1);
  CHECK_THAT(extrapolated(16384).front(), Catch::Contains("times the longest that was calibrated: extrapolated"));
}

TEST_CASE("large collectives of more GPUs than logs have are noted", "[predict]") {
  const auto is_noted = [](std::int64_t dp, bool has_logs = false) {
    const Scenario scenario = of_ranks(dp);
    sim::Platform platform = sim::read_platform(scenario.platform);
    if (has_logs) {
      std::vector<sim::CollectiveTime> times = platform.accelerator->collectives.times();
      times.push_back({CollectiveKind::all_reduce, {2048, 256}, 1 << 20, 5000});
      platform.accelerator->collectives = sim::CollectiveTable(times);
    }
    const std::vector<std::string> notes = predict_step(scenario, platform).prediction.notes;
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.starts_with("collectives of " + std::to_string(dp) + " GPUs");
    });
  };
  CHECK_FALSE(is_noted(512));
  CHECK(is_noted(2048));
  CHECK_FALSE(is_noted(2048, true));
}
