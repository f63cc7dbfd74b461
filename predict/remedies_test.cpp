#include "predict/remedies.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "model/overlap/overlap.hpp"
#include "predict/quick_step.hpp"
#include "report/sheet.hpp"

namespace stretto::predict {
namespace {

// Four layers of experts with small micro-batches: a step that waits for its host.
constexpr const char* kExperts = R"(platform = "h100-sxm"
profile = "megatron-bridge-moe"
[model]
preset = "qwen3-30b-a3b"
num_layers = 4
seq_length = 2048
make_vocab_size_divisible_by = 128
[parallel]
data_parallel_size = 8
expert_model_parallel_size = 8
[training]
micro_batch_size = 1
global_batch_size = 64
)";

struct Found {
  std::vector<PredictedMode> modes;
  std::vector<Remedy> remedies;
};

Found found(const std::vector<std::string>& set, const sim::Platform& platform) {
  const auto read = [&](std::vector<std::string> further) {
    further.insert(further.begin(), set.begin(), set.end());
    return parse_scenario(kExperts, "remedies", further);
  };
  const Scenario scenario = read({});
  Found result{predict_modes(scenario, platform, {}), {}};
  result.remedies = remedies_of(scenario, platform, result.modes, read);
  return result;
}

}  // namespace

TEST_CASE("a mode that loses where the host is the bound wins with the change that is printed", "[predict]") {
  const sim::Platform platform = sim::read_platform(data_file("platforms", "h100-sxm"));
  const auto [modes, remedies] = found({}, platform);
  const auto loses = [](const PredictedMode& mode) {
    return mode.mode != kAsGiven && mode.advice.off_because.empty() && mode.advice.saved_pct() < -Advice::kSmall_pct;
  };
  REQUIRE(std::count_if(modes.begin(), modes.end(), loses) == std::ssize(remedies));
  const auto pairs = std::find_if(remedies.begin(), remedies.end(), [](const Remedy& remedy) {
    return remedy.mode == "overlap_moe_expert_parallel_comm";
  });
  REQUIRE(pairs != remedies.end());
  REQUIRE(!pairs->change.what.empty());
  CHECK(std::count(pairs->tried.begin(), pairs->tried.end(), pairs->change.what) == 1);
  CHECK(pairs->step_ms < pairs->plain_ms);
  CHECK(pairs->plain_ms <= modes.front().step_ms);
  CHECK(pairs->gain.low < pairs->gain.saved);
  // The printed settings give the printed step.
  const Scenario changed = parse_scenario(kExperts, "remedies", pairs->change.set);
  const QuickStep step(with_mode(changed, pairs->mode, changed.parallel.ranks()));
  CHECK(1e3 * step.step_s(platform, changed.framework) == Approx(pairs->step_ms).epsilon(1e-12));
  const std::string text = remedies_text(remedies);
  CHECK(text.find(pairs->mode + " wins with " + pairs->change.what) != std::string::npos);
  CHECK(text.find("--set ") != std::string::npos);
}

TEST_CASE("a mode for which nothing helps says what was tried", "[predict]") {
  const std::vector<Remedy> none = {{.mode = "a", .change = {}, .gain = {}, .tried = {"b", "c"}},
                                    {.mode = "d", .change = {}, .gain = {}, .tried = {}}};
  CHECK(remedies_text(none) == "a: nothing tried makes it win: tried b, c");
  CHECK(remedies_sheet(none).json().at(0).at("step_ms").is_null());
  CHECK(remedies_text({}).empty());
  CHECK(remedies_sheet(none).table().rows() == 2);
}

TEST_CASE("a machine without tables has no remedies", "[predict]") {
  std::vector<PredictedMode> modes(1);
  CHECK(remedies_of(parse_scenario(kExperts, "remedies", {}), sim::Platform(), modes, nullptr).empty());
}

}  // namespace stretto::predict
