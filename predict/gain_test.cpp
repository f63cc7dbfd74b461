#include "predict/gain.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/data_folder.hpp"
#include "model/scenario/overrides.hpp"
#include "predict/constants.hpp"
#include "report/advice.hpp"

namespace stretto::predict {
namespace {

constexpr const char* kStep = R"(platform = "h100-sxm"
profile = "PROFILE"
[model]
num_layers = 4
hidden_size = 2048
num_attention_heads = 16
seq_length = 1024
vocab_size = 1024
[parallel]
data_parallel_size = 4
tensor_model_parallel_size = 2
sequence_parallel = true
use_distributed_optimizer = true
[training]
precision = "bf16"
global_batch_size = 4
)";

Scenario step_of(const std::string& profile, bool overlaps) {
  std::string text = kStep;
  text.replace(text.find("PROFILE"), 7, profile);
  return parse_scenario(text, "gain", {std::string("overlap.overlap_grad_reduce=") + (overlaps ? "true" : "false")});
}

Gain gain_of(const Scenario& from, const Scenario& to, const sim::Platform& platform) {
  const Doubts doubts(from, platform);
  const auto logs = [&](const Scenario& of) {
    const QuickStep step(of);
    return doubts.logs(step, step.step_s(platform, of.framework));
  };
  return doubts.gain(logs(from), logs(to));
}

sim::Platform without_intervals() {
  sim::Platform platform = sim::read_platform(data_file("platforms", "h100-sxm"));
  Framework none;
  for (const Constant& constant : constants_of(*platform.accelerator, none))
    constant.quantity->low = constant.quantity->high;
  return platform;
}

}  // namespace

TEST_CASE("a gain that depends on no unknown number has the interval of two runs on both sides", "[predict]") {
  const sim::Platform platform = without_intervals();
  Scenario off = step_of("megatron-core-te", false), on = step_of("megatron-core-te", true);
  for (Scenario* of : {&off, &on}) of->framework = {};
  const Gain same = gain_of(off, off, platform), gain = gain_of(off, on, platform);
  CHECK(same.saved == 0);
  CHECK(same.high == Approx(-std::expm1(-std::sqrt(2.0) * kBetweenContainers)));
  CHECK(same.decides == Doubt::stacks);
  CHECK(gain.low < gain.saved);
  CHECK(gain.saved < gain.high);
}

TEST_CASE("the host and the hardware queue widen a gain", "[predict]") {
  const sim::Platform platform = without_intervals();
  Scenario off = step_of("megatron-core-te", false), on = step_of("megatron-core-te", true);
  REQUIRE(on.cluster.cuda_device_max_connections == 1);
  // Without other doubts of the profile reductions are serialised or not: the interval reaches what a queue for each
  // lane would give.
  for (Scenario* of : {&off, &on}) {
    sim::Accelerator accelerator = *platform.accelerator;
    for (const Constant& constant : constants_of(accelerator, of->framework))
      constant.quantity->low = constant.quantity->high;
    of->framework.host.issue_us.value = 0;
    of->framework.host.cpp_us.value = 0;
  }
  const Gain serialised = gain_of(off, on, platform);
  CHECK(serialised.decides == Doubt::queue);
  CHECK(serialised.high - serialised.saved > serialised.saved - serialised.low);
  for (Scenario* of : {&off, &on}) of->framework.host.reductions_serialise.value = 0;
  CHECK(gain_of(off, on, platform).saved <= serialised.high);
  // With a host whose factor is known to 1.6 alone, the host decides.
  for (Scenario* of : {&off, &on}) {
    of->framework.host.issue_us = {165, {}, 60, 400, {}};
    of->framework.host.reductions_serialise = {};
  }
  on.overlap.align_grad_reduce = !on.overlap.align_grad_reduce;
  CHECK(gain_of(off, on, platform).low < serialised.saved);
}

TEST_CASE("the interval covers the profiles that a framework's name may mean", "[predict]") {
  const sim::Platform platform = without_intervals();
  for (const char* profile : {"megatron-bridge-moe", "torchtitan-compile", "nemo-dgxc"}) {
    INFO(profile);
    const Scenario off = step_of(profile, false), on = step_of(profile, true);
    const Gain gain = gain_of(off, on, platform);
    CHECK(gain.low < gain.saved);
    CHECK(gain.saved < gain.high);
  }
}

TEST_CASE("each doubt has words that name what decides", "[predict]") {
  CHECK(words_of(Doubt::nothing).empty());
  for (int i = 1; i <= static_cast<int>(Doubt::stacks); ++i) {
    const std::string words = words_of(static_cast<Doubt>(i));
    CHECK(!words.empty());
    CHECK(words.find(';') != std::string::npos);
  }
}

}  // namespace stretto::predict
