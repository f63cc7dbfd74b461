// Names of operations, tensors, blocks, lanes and communicators are text for people. A schedule whose names are all
// others has the same costs, times, memory and reports: nobody reads meaning out of a name.
#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "predict/predict_step.hpp"
#include "report/critical_path.hpp"
#include "report/exposure.hpp"
#include "report/stage_bars.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::testing {
namespace {

Schedule renamed(Schedule schedule) {
  int next = 0;
  const auto rename = [&](auto& all) {
    for (auto& one : all) one.name = "x" + std::to_string(next++);
  };
  schedule.name = "x";
  rename(schedule.lanes);
  rename(schedule.communicators);
  rename(schedule.storages);
  rename(schedule.tensors);
  rename(schedule.operations);
  rename(schedule.blocks);
  return schedule;
}

// All that is computed from a schedule, but for names.
struct Results {
  sim::Costs costs;
  Picoseconds step = 0;
  std::vector<std::int64_t> memory;  // of each role by part, then outside of its tensors
  std::vector<std::array<std::int64_t, 5>> bars;
  std::vector<std::pair<std::string, double>> path;
  std::vector<Picoseconds> exposed;
  bool operator==(const Results&) const = default;
};

Results results_of(Schedule schedule, const Scenario& scenario, const sim::Platform& platform) {
  Results results;
  results.costs = sim::cost_schedule(schedule, platform, scenario.cluster, 1, scenario.framework, scenario.training);
  const VerifiedSchedule verified = plan_and_verify(std::move(schedule));
  const sim::SimResult result =
      sim::simulate(verified.schedule, static_cast<const BoundStep&>(verified), results.costs);
  results.step = result.step;
  const DeviceMemory memory = predict::memory_of(verified.schedule, verified.plan, platform, scenario.training,
                                                 scenario.framework, result.programs);
  for (const MemoryUse& use : memory.roles) {
    results.memory.insert(results.memory.end(), {use.parameters, use.optimizer_state, use.inputs_and_scalars,
                                                 use.gradients, use.activations, use.workspace, use.held, use.state});
    for (const OutsidePlan& part : use.further) results.memory.push_back(part.bytes);
  }
  for (const OutsidePlan& part : memory.outside_plan) results.memory.push_back(part.bytes);
  for (const StageTrack& track : stage_bars(verified.schedule, result.programs, result.timeline))
    for (const StageBar& bar : track.bars)
      results.bars.push_back({int(bar.kind), bar.micro_batch, bar.chunk, bar.start, bar.end});
  results.path = path_shares(verified.schedule, result, critical_path(result, result.timeline));
  results.exposed = mean_breakdown(verified.schedule, result.programs, result.timeline).exposed;
  return results;
}

constexpr const char* kDense = "[model]\npreset = \"llama3-8b\"\nnum_layers = 4\nseq_length = 2048\n";
constexpr const char* kExperts = "[model]\npreset = \"deepseek-v2-lite\"\nnum_layers = 4\nseq_length = 1024\n";

}  // namespace

TEST_CASE("a schedule with other names has the same costs, times and memory", "[names]") {
  const std::string dense = kDense, experts = kExperts;
  const std::string batch = "[training]\nmicro_batch_size = 1\nglobal_batch_size = 16\n";
  const std::string low = "fp8_format = \"hybrid\"\n";
  struct Case {
    const char* what;
    std::string profile, text;
  };
  const std::string tp = "[parallel]\ntensor_model_parallel_size = 2\nsequence_parallel = true\n";
  const Case cases[] = {
      {"tensor and pipeline parallel with userbuffers", "nemo-dgxc",
       dense + tp + "pipeline_model_parallel_size = 2\ndata_parallel_size = 2\n" + batch},
      {"recomputed modules of experts", "megatron-bridge-moe-library",
       experts + "[parallel]\nexpert_model_parallel_size = 2\ndata_parallel_size = 2\n" + batch +
           "recompute_granularity = \"selective\"\nrecompute_modules = [\"moe_act\", \"mlp\", \"core_attn\", "
           "\"layernorm\", \"mla_up_proj\", \"shared_experts\"]\n"},
      {"whole layers recomputed", "megatron-2022",
       dense + tp + "data_parallel_size = 2\n" + batch + "recompute_granularity = \"full\"\n"},
      {"graphs of modules", "megatron-bridge-moe-library",
       experts + "[parallel]\nexpert_model_parallel_size = 2\ndata_parallel_size = 2\n" + batch +
           "cuda_graph_modules = [\"attn\", \"mlp\", \"moe_router\", \"moe_preprocess\"]\n"},
      {"fp8 with gathered codes", "megatron-bridge-fsdp",
       dense + "[parallel]\ndata_parallel_size = 4\ndata_parallel_sharding_strategy = \"optim_grads_params\"\n" +
           batch + low},
      {"FSDP of another framework", "torchtitan",
       dense + "[parallel]\ndata_parallel_size = 4\ndata_parallel_sharding_strategy = \"optim_grads_params\"\n" +
           batch},
      {"buckets with codes gathered", "megatron-core-te",
       dense + "[parallel]\ndata_parallel_size = 4\nuse_distributed_optimizer = true\n" + batch + low +
           "[overlap]\nfp8_param_gather = true\noverlap_param_gather = true\noverlap_grad_reduce = true\n"},
  };
  for (const Case& one : cases) {
    INFO(one.what);
    const Scenario scenario =
        parse_scenario("platform = \"h100-sxm\"\nprofile = \"" + one.profile + "\"\n" + one.text, "names.toml");
    const sim::Platform platform = sim::read_platform(scenario.platform);
    const Schedule schedule = build_schedule(scenario);
    const Results given = results_of(schedule, scenario, platform),
                  other = results_of(renamed(schedule), scenario, platform);
    CHECK(given.costs == other.costs);
    CHECK(given.step == other.step);
    CHECK(given.memory == other.memory);
    CHECK(given.bars == other.bars);
    CHECK(given.path == other.path);
    CHECK(given.exposed == other.exposed);
  }
}

}  // namespace stretto::testing
