// Tests of mixed precision: operations in bf16, gradients, sums and the optimizer in f32.
#include "base/bf16.hpp"

#include <catch2/catch.hpp>

#include "exec/cuda/cuda.hpp"
#include "exec/trainer.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

// Tolerances: two roundings of 8 bits an operation, and a depth of a few dozen operations.
constexpr double kLossTolerance = 0.02, kGradientTolerance = 0.1;

Layout layout_of(std::int64_t dp, std::int64_t tp, bool sequence_parallel, std::int64_t pp) {
  Layout layout;
  layout.dp = dp;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  layout.pp = pp;
  return layout;
}

}  // namespace

TEST_CASE("bf16: training stays near f32 in every layout and mode", "[bf16][serial]") {
  const Layout layouts[] = {layout_of(2, 1, false, 1), layout_of(1, 2, false, 1), layout_of(1, 2, true, 1),
                            layout_of(2, 1, false, 2), layout_of(2, 2, true, 2)};
  for (const bool llama : {false, true}) {
    const Trained exact = train(layout_scenario(Layout{}, "plain", llama, "fp32"), 1, false);
    Cases cases;
    for (const Layout& layout : layouts) {
      const Trained exact_here =
          layout.pp == 1 ? exact : train(layout_scenario(layout, "plain", llama, "fp32"), 1, false);
      for (const OverlapMode& mode : overlap_modes()) {
        const Scenario scenario = layout_scenario(layout, mode.name, llama, "bf16");
        if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
        INFO(layout.text() << ", " << mode.name << (llama ? ", llama" : ", gpt"));
        const Trained rounded = train(scenario, 1, false);
        CHECK(rounded.losses.back() == Approx(exact_here.losses.back()).epsilon(kLossTolerance));
        CHECK(rounded.norms.back() == Approx(exact_here.norms.back()).epsilon(kGradientTolerance));
        CHECK(rounded.losses.back() != exact_here.losses.back());  // rounding did happen
      }
    }
  }
}

TEST_CASE("bf16: the optimizer keeps what the parameters round away", "[bf16]") {
  // The learning rate is so small that no parameter in bf16 would ever change by it.
  Scenario scenario = tiny_scenario(2, "plain", "bf16");
  scenario.training.lr = scenario.training.min_lr = 1e-6;
  scenario.training.lr_warmup_iters = 0;
  scenario.training.weight_decay = 0;
  const Trained once = train(scenario, 1, false), often = train(scenario, 5, false);
  double moved = 0;
  for (std::size_t t = 0; t < once.parameters.size(); ++t)
    for (std::size_t i = 0; i < once.parameters[t].values.size(); ++i)
      moved = std::max(moved, std::abs(often.parameters[t].values[i] - once.parameters[t].values[i]));
  CHECK(moved > 1e-6);
  CHECK(moved < 1e-5);
}

namespace {

Scenario aware_scenario(const Layout& layout, const std::string& mode, bool is_low) {
  Scenario scenario = layout_scenario(layout, mode, true, "bf16");
  OptimizerPrecision& types = scenario.training.optimizer_precision;
  types.use_precision_aware_optimizer = true;
  if (is_low) types.exp_avg_dtype = types.exp_avg_sq_dtype = OptimizerPrecision::Moment::bf16;
  return scenario;
}

}  // namespace

TEST_CASE("bf16: masters of remainders are the masters, and shards of moments in bf16 are the whole's",
          "[bf16][serial]") {
  for (const Layout& layout : {layout_of(2, 1, false, 1), layout_of(2, 2, true, 1), layout_of(2, 1, false, 2)}) {
    INFO(layout.text());
    const Trained plain = train(layout_scenario(layout, "plain", true, "bf16"), 3, false),
                  halves = train(aware_scenario(layout, "overlap_param_gather", false), 3, false);
    CHECK(halves.losses == plain.losses);
    CHECK(same_bits(halves.parameters, plain.parameters));
    const Trained low = train(aware_scenario(layout, "overlap_param_gather", true), 3, false);
    CHECK_FALSE(same_bits(low.parameters, plain.parameters));
    CHECK(worst_relative_difference(low.parameters, plain.parameters) < 0.05);
    for (const Sharding sharding : {Sharding::no_shard, Sharding::optim_grads_params}) {
      Scenario other = aware_scenario(layout, "plain", true);
      other.parallel.data_parallel_sharding_strategy = sharding;
      if (sharding == Sharding::optim_grads_params && layout.pp > 1) continue;
      const Trained again = train(other, 3, false);
      CHECK(again.losses.back() == Approx(low.losses.back()).epsilon(sharding == Sharding::no_shard ? 1e-12 : 1e-2));
      if (sharding == Sharding::no_shard) CHECK(same_bits(again.parameters, low.parameters));
    }
  }
}

TEST_CASE("bf16: states that no executor has are refused by name", "[bf16]") {
  Scenario scenario = aware_scenario(Layout{}, "plain", true);
  exec::require_executable(scenario);
  CHECK_THROWS_WITH(cuda::make_cuda_executor(plan_and_verify(build_schedule(scenario)), {}),
                    Catch::Contains("use_precision_aware_optimizer: expected false on a GPU"));
  scenario.training.optimizer_precision.exp_avg_dtype = OptimizerPrecision::Moment::fp8;
  CHECK_THROWS_WITH(exec::require_executable(scenario), Catch::Contains("exp_avg_dtype") && Catch::Contains("fp8"));
}

TEST_CASE("bf16: planned states have the bytes of their types", "[bf16]") {
  using P = OptimizerPrecision;
  const auto bytes = [](const Scenario& scenario) {
    const Schedule schedule = build_schedule(scenario);
    std::int64_t states = 0, elements = 0;
    for (const Storage& storage : schedule.storages)
      if (storage.kind == BufferKind::optimizer_state) {
        states += storage.bytes();
        elements += storage.name.starts_with("adam.m") ? storage.elements : 0;
      }
    return static_cast<double>(states) / static_cast<double>(elements);
  };
  const Layout layout = layout_of(2, 1, false, 1);
  CHECK(bytes(layout_scenario(layout, "plain", true, "bf16")) == 12);
  CHECK(bytes(aware_scenario(layout, "plain", false)) == 10);
  Scenario scenario = aware_scenario(layout, "plain", true);
  CHECK(bytes(scenario) == 6);
  P& types = scenario.training.optimizer_precision;
  types.exp_avg_dtype = types.exp_avg_sq_dtype = P::Moment::fp8;
  CHECK(bytes(scenario) == 4);  // the least that a search counts on (sweep/bounds.cpp)
  types.main_params_dtype = P::Parameters::fp16;
  types.exp_avg_dtype = P::Moment::fp16;
  CHECK(bytes(scenario) == 5);
  scenario = aware_scenario(layout, "plain", true);
  scenario.parallel.data_parallel_sharding_strategy = Sharding::optim_grads;
  CHECK(bytes(scenario) == 8);
  scenario = aware_scenario(layout, "plain", true);
  scenario.overlap.fp8_param_gather = true;
  CHECK(bytes(scenario) == 8);
}

TEST_CASE("bf16: state that is written comes back, and parameters are the master's rounded", "[bf16]") {
  const bool is_aware = GENERATE(false, true);
  const Layout layout = layout_of(2, 2, true, 1);
  const Scenario scenario = is_aware ? aware_scenario(layout, "overlap_param_gather", false)
                                     : layout_scenario(layout, "overlap_param_gather", false, "bf16");
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_memory(schedule);
  serial::SerialExecutor executor(schedule, plan);
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  std::vector<exec::FullTensor> written = exec::gather_state(schedule, memory_of, StatePart::parameters);
  for (exec::FullTensor& tensor : written)
    for (double& value : tensor.values) value = static_cast<float>(value * 1.001 + 0.01);
  exec::scatter_state(
      schedule, memory_of, StatePart::parameters, [&](const std::string& name) -> const exec::FullTensor& {
        return *std::find_if(written.begin(), written.end(), [&](const auto& t) { return t.name == name; });
      });
  CHECK(same_bits(exec::gather_state(schedule, memory_of, StatePart::parameters), written));

  const StateBucket& bucket = schedule.state.buckets.front();
  const StorageId master = bucket.window(StatePart::master)->storage,
                  parameter = bucket.window(StatePart::parameters)->storage;
  if (is_aware) {
    CHECK(schedule.storages[master].dtype == Dtype::i16);
    return;
  }
  CHECK(schedule.storages[master].dtype == Dtype::f32);
  CHECK(schedule.storages[parameter].dtype == Dtype::bf16);
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
    const std::int64_t shard = bucket.own_elements, begin = schedule.mesh.coordinates_of(rank)[Coord::dp] * shard;
    const auto exact = memory_of(rank).view<float>(schedule, master, 0, shard);
    const auto rounded = memory_of(rank).view<Bf16>(schedule, parameter, begin, shard);
    bool same = true;
    for (std::size_t i = 0; i < exact.size(); ++i) same = same && to_bf16(exact[i]).bits == rounded[i].bits;
    CHECK(same);
  }
}

}  // namespace stretto::testing
