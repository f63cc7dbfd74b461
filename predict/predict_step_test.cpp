#include "predict/predict_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/data_folder.hpp"
#include "predict/knobs.hpp"
#include "predict/resolution.hpp"
#include "report/sheet.hpp"

using namespace stretto;
using namespace stretto::predict;

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

// Tests each shipped profile on each shipped platform: none is refused. Where the platform has no rates of the
// profile's attention kernel, its default stands in, and a note says so.
TEST_CASE("every shipped profile answers on every shipped platform", "[predict]") {
  int pairs = 0, noted = 0;
  for (const std::string& platform_name : data_names("platforms")) {
    const sim::Platform platform = sim::read_platform(data_file("platforms", platform_name));
    for (const std::string& profile : data_names("profiles")) {
      INFO(profile << " on " << platform_name);
      Scenario scenario = parse_scenario("platform = \"" + platform_name + "\"\nprofile = \"" + profile + R"("
[model]
num_layers = 2
hidden_size = 512
num_attention_heads = 4
seq_length = 512
vocab_size = 1024
[parallel]
data_parallel_size = 2
tensor_model_parallel_size = 2
)",
                                         "pair");
      const std::vector<std::string> notes = predict_step(scenario, platform).prediction.notes;
      const std::string& named = scenario.framework.attention_kernel;
      const bool is_there = named.empty() || platform.accelerator->attention_named(named).name == named;
      const bool is_unfused = scenario.training.attention_backend == AttentionBackend::unfused;
      const auto says = std::count_if(notes.begin(), notes.end(), [&](const std::string& note) {
        return note.starts_with("attention: " + platform_name + " has no rates of " + named);
      });
      CHECK(says == (is_there || is_unfused ? 0 : 1));
      ++pairs;
      noted += int(says);
    }
  }
  CHECK(pairs >= 102);
  CHECK(noted >= 19);
  CHECK(read_scenario(data_file("models", "llama3-405b")).framework.name == "meta-llama3");
}

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

TEST_CASE("what is taken from beyond the measurements is noted where it matters", "[predict]") {
  const auto noted = [](const std::string& platform, const std::vector<std::string>& set, const std::string& begin) {
    const Scenario scenario = parse_scenario("platform = \"" + platform + R"("
[model]
num_layers = 2
hidden_size = 8192
num_attention_heads = 64
seq_length = 4096
vocab_size = 32000
[training]
precision = "bf16"
)",
                                             "beyond", set);
    for (const std::string& note : predict_step(scenario, sim::read_platform(scenario.platform)).prediction.notes)
      if (note.starts_with(begin)) return note;
    return std::string();
  };
  SECTION("GEMMs: micro-batches of 16,384 tokens have sides of 16,384 and 24,576, where A100's table ends at 8,192") {
    CHECK(noted("a100-80gb", {}, "") == "");
    CHECK(noted("a100-80gb", {"training.micro_batch_size=4", "training.global_batch_size=4"}, "") ==
          "3 of 12 shapes of GEMMs, 31 % of their time, are outside the table of a100-80gb (m 1024 to 8192, n 256 to "
          "65536, k "
          "256 to 65536), by up to 2 times: their times are extrapolated");
    CHECK(noted("h100-sxm", {"training.micro_batch_size=4", "training.global_batch_size=4"}, "") == "");
  }
  SECTION("groups of a domain with fewer measured GPUs") {
    const std::vector<std::string> of_8 = {"parallel.tensor_model_parallel_size=8"};
    CHECK(noted("gb200-nvl72", of_8, "collectives of up to 8 GPUs of a domain") != "");
    CHECK(noted("b200-sxm", of_8, "") == "");
  }
  SECTION("attention with other heads, and with more keys, than its rates are of") {
    const std::string begin = "attention, ";
    CHECK(noted("h100-sxm", {"model.num_attention_heads=128", "model.seq_length=16384"}, begin)
              .ends_with("here heads of 64 elements, not 128"));
    CHECK(noted("h100-sxm", {"model.seq_length=65536"}, begin)
              .ends_with("here 65536 keys, where at most 16384 were measured"));
    CHECK(noted("h100-sxm", {"model.seq_length=32768"}, begin) == "");
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
  CHECK(extrapolated(4096).empty());  // the calibrated range is not known
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

TEST_CASE("CUDA graphs whose predicted effect is below what predictions resolve are said", "[predict]") {
  const sim::Platform platform = sim::read_platform(data_file("platforms", "h100-sxm"));
  const char* kGraph = "cuda_graph_modules = [\"full_iteration\"]";
  const auto note_of = [&](std::int64_t hidden_size, const char* modules) {
    const Scenario scenario = parse_scenario(
        fmt::format(
            "platform = \"h100-sxm\"\nprofile = \"megatron-core-te\"\n[model]\nnum_layers = 2\nhidden_size = {}\n"
            "num_attention_heads = 16\nseq_length = 2048\nvocab_size = 32000\n[training]\nprecision = \"bf16\"\n"
            "{}\n",
            hidden_size, modules),
        "graphs");
    return unresolved_graphs(scenario, platform, {}, predict_step(scenario, platform).prediction.step_ms);
  };
  const auto large = note_of(8192, kGraph);
  REQUIRE(large);
  CHECK_THAT(*large, Catch::Contains("less than predictions resolve (2.5 %)") && Catch::Contains("benchmark"));
  CHECK_FALSE(note_of(8192, ""));
  CHECK_FALSE(note_of(512, kGraph));  // the host bounds this step, and graphs free it

  const std::string table = knobs_sheet({{"small", {}, 101, 1}, {"large", {}, 110, 10}}).table().text();
  CHECK_THAT(table, Catch::Contains("+1.0 % (not resolved)") && !Catch::Contains("+10.0 % (not resolved)"));
}
