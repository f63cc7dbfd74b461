// Tests that the results of `simulate --modes` add up, however a step is cut.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "predict/constants.hpp"
#include "predict/knobs.hpp"
#include "predict/predict_step.hpp"
#include "tests/random_layout.hpp"

namespace stretto::testing {

// A sanitizer's build is many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDrawn = 2;
#else
constexpr int kDrawn = 12;
#endif

TEST_CASE("the parts of every mode add up to its step, also with one hardware queue", "[modes]") {
  // No constant has an interval, so each mode is simulated once.
  sim::Platform platform = sim::read_platform(data_file("platforms", "h100-sxm"));
  Framework framework;
  for (const predict::Constant& constant : predict::constants_of(*platform.accelerator, framework))
    constant.quantity->low = constant.quantity->high;
  int seen = 0;
  double most_queue_wait = 0;
  for (std::uint64_t seed = 1; seen < kDrawn && seed < 100; ++seed) {
    Scenario scenario = random_layout(seed).scenario;
    scenario.cluster.cuda_device_max_connections = 1;
    scenario.cluster.ranks_per_device = 1;
    scenario.training.precision = "bf16";
    if (scenario.parallel.ranks() == 1) continue;
    INFO("seed " << seed);
    std::vector<predict::PredictedMode> modes;
    double step_ms = 0;
    try {
      step_ms = predict::predict_step(scenario, platform).prediction.step_ms;
      modes = predict::predict_modes(scenario, platform, {});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      continue;  // published GPUs have no cost for it
    }
    ++seen;
    for (const predict::PredictedMode& mode : modes) {
      INFO(mode.mode);
      const BreakdownMs& b = mode.breakdown;
      CHECK(b.compute + b.core_wait + b.exposed + b.queue_wait + b.bubble == Approx(mode.step_ms).epsilon(1e-9));
      double by_communicator = 0;
      for (const double ms : b.exposed_by) by_communicator += ms;
      CHECK(by_communicator == Approx(b.exposed).margin(1e-9));
      CHECK(b.exposed_by.size() == mode.communicators.size());
      if (mode.is_scenario) CHECK(mode.step_ms == step_ms);
      most_queue_wait = std::max(most_queue_wait, b.queue_wait / mode.step_ms);
    }
    // The step of a knob off equals the simulation of that scenario.
    for (const predict::KnobOff& knob : predict::predict_without(scenario, platform, {}, step_ms, modes)) {
      INFO(knob.knob);
      CHECK(knob.step_ms > 0);
      CHECK(knob.saved_ms == Approx(knob.step_ms - step_ms));
    }
  }
  CHECK(seen == kDrawn);
  CHECK(most_queue_wait > 0.01);
}

TEST_CASE("blocking messages cost a zero-bubble schedule its bubble in every micro-batch, and the advice says so",
          "[modes]") {
  const sim::Platform platform = sim::read_platform(data_file("platforms", "h100-sxm"));
  const auto scenario_with = [](const std::string& schedule, bool overlap, int micro_batches) {
    return parse_scenario(R"(platform = "h100-sxm"
[model]
num_layers = 8
hidden_size = 2048
num_attention_heads = 16
seq_length = 2048
vocab_size = 1024
[parallel]
pipeline_model_parallel_size = 4
[training]
precision = "bf16"
)",
                          "v",
                          {"parallel.pipeline_schedule=" + schedule,
                           std::string("overlap.overlap_p2p_comm=") + (overlap ? "true" : "false"),
                           "training.global_batch_size=" + std::to_string(micro_batches)});
  };
  const auto bubble_ms = [&](const std::string& schedule, bool overlap, int micro_batches) {
    const Prediction p = predict::predict_step(scenario_with(schedule, overlap, micro_batches), platform).prediction;
    CHECK(p.notes.empty() == (overlap || schedule == "1f1b"));
    return p.breakdown.bubble / micro_batches;
  };
  // The bubble of 16 and of 64 micro-batches, per micro-batch: filling and draining are shared by more.
  CHECK(bubble_ms("1f1b", false, 64) < 0.4 * bubble_ms("1f1b", false, 16));
  CHECK(bubble_ms("zb-v", true, 64) < 0.7 * bubble_ms("zb-v", true, 16));
  CHECK(bubble_ms("zb-v", false, 64) > 0.8 * bubble_ms("zb-v", false, 16));
  for (const predict::PredictedMode& mode : predict::predict_modes(scenario_with("zb-v", false, 16), platform, {})) {
    INFO(mode.mode << ": " << mode.advice.why());
    const bool says = mode.advice.why().find("a stage of zb-v waits at every message") != std::string::npos;
    CHECK(says == (mode.mode == "overlap_p2p_comm"));
  }
}

}  // namespace stretto::testing
