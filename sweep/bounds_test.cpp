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
#include "tests/draw.hpp"

namespace stretto::sweep {
namespace {

using testing::Draw;

// Returns the text of a scenario with a random layout; not all of them are legal.
std::string random_scenario(std::uint64_t seed) {
  Draw draw(seed * 6364136223846793005ULL + 1);
  struct Base {
    const char *platform, *profile, *model;
    bool has_experts;
  };
  const Base base = draw.one_of<Base>({{"h100-sxm", "nemo-dgxc", "llama3-8b", false},
                                       {"h100-sxm", "nemo-dgxc", "llama3-70b", false},
                                       {"a100-80gb", "megatron-2022", "gpt3-175b", false},
                                       {"b200-sxm", "megatron-core-te", "llama3-8b", false},
                                       {"h100-sxm", "", "llama3-8b", false},
                                       {"h100-sxm", "torchtitan", "llama3-8b", false},
                                       {"h200-sxm", "megatron-bridge-moe", "mixtral-8x7b", true},
                                       {"h100-sxm", "megatron-bridge-moe", "qwen3-30b-a3b", true}});
  const std::int64_t pp = draw.one_of<std::int64_t>({1, 2, 4, 8}), tp = draw.one_of<std::int64_t>({1, 2, 4, 8}),
                     vp = pp > 1 ? draw.one_of<std::int64_t>({1, 1, 2, 3}) : 1,
                     cp = draw.one_of<std::int64_t>({1, 1, 2, 4}), dp = draw.one_of<std::int64_t>({1, 2, 4, 8}),
                     micro_batch = draw.one_of<std::int64_t>({1, 1, 2}),
                     micro_batches = draw.coin() ? pp * draw.between(1, 4) : draw.between(1, 12);
  std::string text = fmt::format("platform = \"{}\"\n", base.platform);
  if (*base.profile != '\0') text += fmt::format("profile = \"{}\"\n", base.profile);
  text += fmt::format("[model]\npreset = \"{}\"\nnum_layers = {}\nseq_length = {}\n", base.model,
                      pp * vp * draw.between(1, 4), draw.one_of<std::int64_t>({2048, 4096}));
  text += fmt::format(
      "[parallel]\ntensor_model_parallel_size = {}\npipeline_model_parallel_size = {}\n"
      "virtual_pipeline_model_parallel_size = {}\ncontext_parallel_size = {}\ndata_parallel_size = {}\n"
      "sequence_parallel = {}\n",
      tp, pp, vp, cp, dp, tp > 1 && draw.between(0, 4) > 0);
  if (base.has_experts)
    text += fmt::format("expert_model_parallel_size = {}\nexpert_tensor_parallel_size = {}\n",
                        draw.one_of<std::int64_t>({1, 2, 4, 8}), draw.coin() ? 1 : tp);
  if (draw.seldom()) text += fmt::format("pipeline_schedule = \"{}\"\n", draw.one_of<const char*>({"zb-h1", "zb-v"}));
  text += fmt::format("[training]\nmicro_batch_size = {}\nglobal_batch_size = {}\nrecompute_granularity = \"{}\"\n",
                      micro_batch, micro_batch * micro_batches * dp,
                      draw.one_of<const char*>({"none", "none", "selective", "full"}));
  text += "[overlap]\n";
  for (const char* knob : {"overlap_grad_reduce", "tp_comm_overlap", "overlap_p2p_comm", "moe_shared_expert_overlap"})
    if (draw.seldom()) text += fmt::format("{} = {}\n", knob, draw.coin());
  return text;
}

}  // namespace

TEST_CASE("closed forms are below step and memory of random layouts, and near them", "[sweep]") {
  const auto cases = static_cast<int>(testing::from_environment("STRETTO_BOUNDS", testing::share_of(160 / int{testing::kCaseStride})));
  const auto first = testing::from_environment("STRETTO_BOUNDS_SEED", 1);
  const bool prints = std::getenv("STRETTO_BOUNDS_PRINT") != nullptr;
  std::vector<double> of_steps, of_bytes;
  int compared = 0;
  for (std::uint64_t seed = first; compared < cases; ++seed) {
    const std::string text = random_scenario(seed);
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
