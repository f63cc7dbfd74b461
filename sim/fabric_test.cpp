#include "sim/fabric.hpp"

#include <catch2/catch.hpp>
#include <optional>

#include "model/build_schedule.hpp"
#include "model/scenario.hpp"
#include "model/verify/verify.hpp"
#include "sim/accelerator/accelerator.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {
namespace {

// 32 GPUs of four nodes.
Scenario cluster(const std::vector<std::string>& set) {
  return parse_scenario(R"(platform = "h100-sxm"
[model]
num_layers = 4
hidden_size = 1024
num_attention_heads = 8
seq_length = 1024
vocab_size = 8192
untie_embeddings_and_output_weights = true
[parallel]
data_parallel_size = 16
tensor_model_parallel_size = 2
[training]
precision = "bf16"
micro_batch_size = 1
global_batch_size = 64
)",
                        "cluster", set);
}

struct Spine {
  std::int64_t pod = 0;
  double oversubscription = 1;
};

double step_us(const Scenario& scenario, NetworkKind network, const std::optional<Spine>& spine = {},
               std::int64_t cards = 8) {
  Platform platform = read_platform(scenario.platform);
  Accelerator& accelerator = *platform.accelerator;
  accelerator.network_cards = cards;
  if (spine) accelerator.pod = spine->pod, accelerator.oversubscription = spine->oversubscription;
  SimOptions options;
  options.network = network;
  if (network == NetworkKind::simgrid) carry_spine(accelerator, options.fabric);
  const Schedule schedule = build_schedule(scenario);
  VerifiedSchedule verified = plan_and_verify(schedule);
  const Costs costs = cost_schedule(schedule, platform, scenario.cluster);
  return to_us(simulate(schedule, std::move(verified), costs, options).step);
}

constexpr NetworkKind kFluid = NetworkKind::fluid, kSimgrid = NetworkKind::simgrid;

}  // namespace

TEST_CASE("flows of a published platform take as long as its closed form where none meet", "[sim][simgrid]") {
  for (const char* shape : {"parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true"}) {
    const Scenario scenario = cluster({shape});
    CHECK(step_us(scenario, kSimgrid) == Approx(step_us(scenario, kFluid)).epsilon(1e-5));
  }
  // Stages have nodes of their own: messages and gradients cross at different times.
  const Scenario pipeline = cluster({"parallel.data_parallel_size=4", "parallel.pipeline_model_parallel_size=4"});
  CHECK(step_us(pipeline, kSimgrid) == Approx(step_us(pipeline, kFluid)).epsilon(1e-3));
}

TEST_CASE("fewer network cards and an oversubscribed spine slow what crosses them", "[sim][simgrid]") {
  const Scenario scenario = cluster({});
  const double free = step_us(scenario, kFluid);
  CHECK(step_us(scenario, kFluid, {}, 2) > 1.05 * free);
  // A ring leaves a pod of two nodes once: eight of the 16 members of its groups send, two for each group of eight.
  CHECK(step_us(scenario, kFluid, Spine{16, 1}) == free);
  CHECK(step_us(scenario, kFluid, Spine{16, 2}) == free);
  CHECK(step_us(scenario, kFluid, Spine{16, 16}) > 1.05 * free);
}

TEST_CASE("the closed form of a spine agrees with its links", "[sim][simgrid]") {
  for (const double oversubscription : {1.0, 3.0, 8.0, 16.0})
    for (const std::int64_t pod : {8, 16, 32}) {
      const Scenario scenario = cluster({});
      INFO("pods of " << pod << ", " << oversubscription << " : 1");
      const Spine spine{pod, oversubscription};
      CHECK(step_us(scenario, kSimgrid, spine) == Approx(step_us(scenario, kFluid, spine)).epsilon(0.02));
    }
}

}  // namespace stretto::sim
