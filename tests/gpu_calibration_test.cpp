// Tests from the calibration of a GPU to a comparison with it, on the emulated device: every step exists and fits the
// next. Times are the emulation's, so nothing here tests accuracy.
#if !defined(__SANITIZE_ADDRESS__)  // emulated threads are slow with a sanitizer
#include <array>
#include <catch2/catch.hpp>
#include <climits>
#include <cstdlib>
#include <set>
#include <utility>
#include <variant>

#include "base/values_of.hpp"
#include "calibrate/calibrate.hpp"
#include "compare/compare.hpp"
#include "exec/cuda/cuda.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/cost/evaluate.hpp"
#include "tests/as_processes.hpp"
#include "tests/fake_cuda/nccl.h"
#include "tests/fake_gpu.hpp"
#include "tests/simulate.hpp"
#include "tests/small_mixture.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tiny_gpu_sizes.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

bool has_line(const std::vector<std::string>& lines, const std::string& beginning) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(beginning); });
}

const calibrate::Calibration& calibration() {
  static const calibrate::Calibration the_calibration =
      calibrate::calibrate_gpu(fake_gpu(), tiny_gpu_sizes(), [](const std::string&) {});
  return the_calibration;
}

// A device that follows the simulator's own model of one.
class SimulatedGpu : public exec::Executor {
 public:
  SimulatedGpu(const VerifiedSchedule& verified, const sim::Platform& platform, const exec::RunOptions& links,
               Network network)
      : schedule_(verified.schedule), step_(unfolded(verified.schedule, verified)) {
    Cluster cluster;
    cluster.network = network;
    cluster.link_GBps = links.link_GBps > 0 ? links.link_GBps : 1e9;
    cluster.link_latency_us = links.link_latency_us;
    costs_ = sim::cost_schedule(schedule_, platform, cluster);
    for (const BoundProgram& program : step_.programs)
      memory_.push_back(std::make_unique<host::RankMemory>(schedule_, verified.plan.roles[program.role]));
  }
  Timeline run(int steps) override {
    sim::SimOptions options;
    options.max_steps = steps;
    options.stops_when_steady = false;
    return sim::simulate(schedule_, step_, costs_, options).timeline;
  }
  const std::vector<BoundProgram>& programs() const override { return step_.programs; }
  host::RankMemory& memory(std::int64_t rank) override { return *memory_[static_cast<std::size_t>(rank)]; }
  std::optional<Device> device() const override { return Device{"Simulated GPU", 4, 1 << 30}; }

 protected:
  const Schedule& schedule_;

 private:
  sim::Costs costs_;
  BoundStep step_;
  std::vector<std::unique_ptr<host::RankMemory>> memory_;
};

// A platform with numbers of a real GPU's size: the emulation's kernels take longer than the links that they stand for.
sim::Platform plausible_platform() {
  sim::Platform given = calibration().platform;
  given.op_overhead_us.value = 0.02;
  given.wake_us.value = 0.03;
  given.timer_overshoot_us.value = 7;
  for (std::size_t c = 0; c < sim::kDemandClasses; ++c) {
    const double more = 0.1 * static_cast<double>(c);
    given.gpu->beside_moving[c] = {{2, 4}, {0.2 + more, 0.5 + more}, {}};
    given.gpu->beside_waiting[c] = {{2, 4}, {0.1, 0.15 + more}, {}};
    given.gpu->moving_beside[c] = {{2, 4}, {0.3 + more, 0.8 + more}, {}};
    given.gpu->beside_copying[c] = {{2, 4}, {0.15 + more, 0.25 + more}, {}};
    given.gpu->copying_beside[c] = {{2, 4}, {0.4 + more, 0.45 + more}, {}};
  }
  for (auto& [key, fit] : given.costs) {
    const bool moves = key.starts_with("move_") || key == "copy_engine";
    for (std::size_t i = 0; i < fit.coefficients.size(); ++i)
      fit.coefficients[i] = (i == 0 ? 1 : 1e-3) * (moves ? 1.5 : 20);
    fit.measured.clear();
  }
  return given;
}

exec::Machine simulated_gpu(const sim::Platform& given, Network network = Network::links) {
  return {[&given, network](const VerifiedSchedule& verified, const exec::RunOptions& links) {
            return std::make_unique<SimulatedGpu>(verified, given, links, network);
          },
          3};
}

void check_simulated_gpu() {
  const sim::Platform given = plausible_platform();
  const sim::Platform found =
      calibrate::calibrate_gpu(simulated_gpu(given), tiny_gpu_sizes(), [](const std::string&) {}).platform;
  CHECK(found.op_overhead_us.value == Approx(0.02).margin(0.001));
  CHECK(found.wake_us.value == Approx(0.03).margin(0.001));
  CHECK(found.timer_overshoot_us.value == Approx(7).margin(0.1));
  for (std::size_t c = 0; c < sim::kDemandClasses; ++c) {
    INFO(sim::name_of(static_cast<sim::DemandClass>(c)));
    const auto check = [](const sim::Curve& is, const sim::Curve& should) {
      REQUIRE(is.at == should.at);
      CHECK(is.source.kind == "measured");
      for (std::size_t i = 0; i < is.at.size(); ++i)
        CHECK(is.value[i] == Approx(should.value[i]).epsilon(0.1).margin(0.02));
    };
    check(found.gpu->beside_moving[c], given.gpu->beside_moving[c]);
    check(found.gpu->beside_waiting[c], given.gpu->beside_waiting[c]);
    check(found.gpu->moving_beside[c], given.gpu->moving_beside[c]);
    check(found.gpu->beside_copying[c], given.gpu->beside_copying[c]);
    check(found.gpu->copying_beside[c], given.gpu->copying_beside[c]);
  }
  // For each key, the measured time is the given time.
  CHECK(found.costs.size() == given.costs.size());
  for (const auto& [key, fit] : found.costs) {
    INFO(key);
    const sim::CostFit& should = given.costs.at(key);
    for (const sim::MeasuredPoint& point : fit.measured)
      CHECK(sim::evaluate_us(fit, point.features) ==
            Approx(sim::evaluate_us(should, point.features)).epsilon(0.02).margin(0.1));
  }
  // A prediction from it equals the run on it, for more ranks than the models were measured at.
  for (const char* mode : {"plain", "overlap_grad_reduce", "overlap_param_gather", "tp_comm_ring_exchange"}) {
    const std::int64_t tp = find_overlap_mode(mode).applies(Scenario().parallel) ? 1 : 2;
    Scenario scenario = calibrate::scenario_of(tiny_gpu_sizes().steps.front().shape, 2, tp);
    scenario.training.precision = "bf16";
    scenario.cluster.link_GBps = 0.1;
    scenario.cluster.link_latency_us = 5;
    scenario.cluster.max_ctas = {{"dp", 2}};
    scenario.overlap.bucket_size = 2000;
    set_mode(scenario.overlap, find_overlap_mode(mode));
    INFO(mode);
    const Schedule schedule = build_schedule(scenario);
    const auto step_us = [&](const sim::Platform& platform) {
      return to_us(sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster)).step);
    };
    CHECK(step_us(found) == Approx(step_us(given)).epsilon(0.03));
  }
}

void check_simulated_nccl() {
  sim::Platform given = plausible_platform();
  for (const char* kind : {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "message"}) {
    const bool has_steps = kind != std::string("message");
    std::vector<double> coefficients = {8};
    if (has_steps) coefficients.push_back(3);
    coefficients.push_back(0.02);
    given.costs[std::string("nccl_") + kind] = {coefficients, {}};
    coefficients.push_back(0.05);
    given.costs[std::string("nccl_") + kind + "_channels"] = {coefficients, {}};
  }
  const std::vector<calibrate::Sample> samples =
      calibrate::probe_nccl(simulated_gpu(given, Network::nccl), tiny_gpu_sizes(), 4);
  CHECK(samples.size() == 2 * 5 * 3 * 2);  // groups of 2 and 4, kinds, NCCL's channels and two numbers, sizes
  for (const calibrate::Sample& sample : samples) {
    INFO(sample.key << ", " << sample.features.back());
    CHECK(sample.us ==
          Approx(sim::evaluate_us(given.costs.at(sample.key), sample.features)).epsilon(0.001).margin(0.04));
  }
  const sim::Platform found = calibrate::calibrate_gpu(
                                  simulated_gpu(given), tiny_gpu_sizes(), [](const std::string&) {}, samples)
                                  .platform;
  Scenario scenario = calibrate::scenario_of(tiny_gpu_sizes().steps.front().shape, 4, 2);
  scenario.training.precision = "bf16";
  scenario.cluster.ranks_per_device = 1;
  scenario.cluster.network = Network::nccl;
  scenario.overlap.tp_comm_overlap_cfg.clear();
  const Schedule schedule = build_schedule(scenario);
  const auto step_us = [&](const sim::Platform& platform) {
    return to_us(sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster)).step);
  };
  CHECK(step_us(found) == Approx(step_us(given)).epsilon(0.03));
}

void check_processes() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // threads are not processes: they share the environment
  std::array<std::vector<calibrate::Sample>, 2> samples;
  std::vector<std::string> errors = as_processes(2, 60, [&](launch::ProcessGroup& group) {
    samples[static_cast<std::size_t>(group.rank())] = calibrate::probe_nccl(fake_gpu(&group), tiny_gpu_sizes(), 2);
  });
  for (const std::string& error : errors) CHECK(error == "");
  REQUIRE(samples[0].size() == 5 * 3 * 2);
  for (const calibrate::Sample& sample : samples[0]) CHECK(sample.us > 0);
  sim::Platform platform = calibration().platform;
  for (const calibrate::Sample& sample : samples[0])
    platform.costs[sample.key] = {std::vector<double>(sample.features.size(), 1e-3), {}};

  Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "bf16", 1, 2);
  scenario.compare.modes = {"plain", "overlap_grad_reduce"};
  scenario.compare.ranks = {1, 2};
  scenario.compare.repeats = 2;
  std::array<compare::Result, 2> runs;
  errors = as_processes(2, 60, [&](launch::ProcessGroup& group) {
    runs[static_cast<std::size_t>(group.rank())] = compare::run(
        scenario, platform, fake_gpu(&group), [](const std::string&) {}, [] { return false; });
  });
  for (const std::string& error : errors) CHECK(error == "");
  CHECK(runs[1].comparison.rows.empty());
  const compare::Result& run = runs[0];
  CHECK(has_line(run.comparison.notes, "[compare] ranks is not looked at: there are 2 processes"));
  REQUIRE(run.comparison.rows.size() == 2);
  for (const ComparisonRow& row : run.comparison.rows) {
    CHECK(row.ranks == 2);
    CHECK(row.predicted_ms > 0);
    CHECK(row.measured_median_ms() > 0);
    CHECK(row.loss > 0);
    CHECK(row.loss == run.comparison.rows[0].loss);
    for (const OperationTime& operation : row.operations) CHECK(operation.predicted_ms > 0);
  }
  // Every operation of both ranks was measured.
  const compare::RowTimelines& plain = run.timelines[0];
  std::size_t operations = 0;
  for (const BoundProgram& program : plain.measured_step.programs) operations += program.ops.size();
  CHECK(plain.measured.rows.size() == operations);
  CHECK(fake_nccl::live() == 0);

  // An interruption of any process ends all together.
  errors = as_processes(2, 60, [&](launch::ProcessGroup& group) {
    runs[static_cast<std::size_t>(group.rank())] = compare::run(
        scenario, platform, fake_gpu(&group), [](const std::string&) {}, [&] { return group.rank() == 1; });
  });
  for (const std::string& error : errors) CHECK(error == "");
  for (const compare::Result& one : runs) CHECK_FALSE(one.complete);
}

void check_completeness() {
  const sim::Platform& platform = calibration().platform;
  CHECK(platform.device == "Fake GPU");
  REQUIRE(platform.gpu);
  CHECK(platform.gpu->sms == 2);
  CHECK(platform.gpu->gemm_TFLOPs.value > 0);
  CHECK(platform.memory_bytes == 1 << 30);
  CHECK(has_line(calibration().notes,
                 "hidden 64, 2 heads, 1000000 x 8 tokens, 2 layers, bf16, vocabulary 256: left out, needs"));
  for (const auto& [key, fit] : platform.costs) {
    INFO(key);
    CHECK_FALSE(fit.measured.empty());
    for (const sim::MeasuredPoint& point : fit.measured) CHECK(point.us > 0);
  }
  const sim::Gpu& gpu = *platform.gpu;
  for (const auto* set :
       {&gpu.beside_moving, &gpu.beside_waiting, &gpu.moving_beside, &gpu.beside_copying, &gpu.copying_beside})
    for (const sim::Curve& curve : *set) {
      REQUIRE(curve.at.size() == curve.value.size());
      CHECK(curve.source.kind == "assumed");  // no operations are concurrent there
      for (std::size_t i = 1; i < curve.at.size(); ++i) CHECK(curve.at[i] > curve.at[i - 1]);
      for (const double value : curve.value) CHECK(value >= 0);
    }
  for (const bool llama : {false, true})
    for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2, true}, Layout{1, 2}, Layout{1, 1, false, 2}})
      for (const OverlapMode& mode : overlap_modes()) {
        Scenario scenario = layout_scenario(layout, mode.name, llama, "bf16", 1, 4);
        if (!mode.applies(scenario.parallel)) continue;
        INFO(layout.text() << ", " << mode.name << (llama ? ", llama" : ", gpt"));
        for (const bool drops : {false, true}) {
          scenario.model.hidden_dropout = scenario.model.attention_dropout = drops ? 0.1 : 0;
          if (drops && llama) continue;
          for (const AttentionBackend backend : {AttentionBackend::fused, AttentionBackend::unfused}) {
            scenario.training.attention_backend = backend;
            const Schedule schedule = build_schedule(scenario);
            const sim::SimResult result =
                sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster));
            CHECK(result.step > 0);
          }
        }
      }
  for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params})
    for (const bool is_fp32 : {false, true})
      for (const bool overlaps : {false, true}) {
        Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "bf16", 1, 4);
        scenario.parallel.data_parallel_sharding_strategy = sharding;
        scenario.overlap.grad_reduce_in_fp32 = is_fp32;
        scenario.overlap.fsdp_comm_overlap = overlaps;
        INFO(name_of(sharding) << (is_fp32 ? ", fp32" : ", bf16"));
        const Schedule schedule = build_schedule(scenario);
        CHECK(sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster)).step > 0);
      }
  for (const CpCommType type : values_of<CpCommType>())
    for (const bool overlaps : {false, true}) {
      Layout layout{1, 1};
      layout.cp = type == CpCommType::a2a_p2p ? 4 : 2;
      layout.cp_type = {type};
      Scenario scenario = layout_scenario(layout, "plain", false, "bf16", 1, 4);
      scenario.model.num_attention_heads = scenario.model.num_query_groups = 4;
      scenario.overlap.cp_comm_overlap = overlaps && scenario.parallel.has_cp_ring();
      scenario.overlap.cp_flash_overlap = overlaps && type == CpCommType::a2a;
      INFO(layout.text() << (overlaps ? ", overlapped" : ""));
      const Schedule schedule = build_schedule(scenario);
      CHECK(sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster)).step > 0);
    }
  for (const auto& [layout, ep] : {std::pair{Layout{1, 1}, 1}, {Layout{2, 1}, 2}, {Layout{2, 2, true}, 2}})
    for (const Mixture mixture : {Mixture::softmax, Mixture::sigmoid})
      for (const TokenDispatcher dispatcher : {TokenDispatcher::alltoall, TokenDispatcher::allgather}) {
        Scenario scenario = small_mixture(layout, ep, mixture, "plain", "bf16");
        scenario.model.qk_layernorm = false;
        scenario.model.swiglu = dispatcher == TokenDispatcher::alltoall;
        scenario.parallel.moe_token_dispatcher_type = dispatcher;
        INFO(layout.text() << ", ep " << ep << ", " << name_of(dispatcher)
                           << (mixture == Mixture::sigmoid ? ", sigmoids" : ", softmax"));
        const Schedule schedule = build_schedule(scenario);
        CHECK(sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster)).step > 0);
      }
  // Llama's products with the residual have not been measured: the prediction uses their parts.
  CHECK(platform.costs.contains("gemm_nt_bias_residual_bf16"));
  CHECK_FALSE(platform.costs.contains("gemm_nt_residual_bf16"));
  CHECK(platform.costs.contains("layernorm_backward_acc_bf16"));
  CHECK(platform.costs.contains("layernorm_backward_bf16"));
  CHECK_FALSE(platform.costs.contains("rmsnorm_backward_acc_bf16"));
  for (const bool llama : {false, true}) {
    Scenario scenario = layout_scenario(Layout{1, 1}, "plain", llama, "bf16", 1, 4);
    scenario.training.residual_fusion = scenario.training.norm_gradient_fusion = true;
    const Schedule schedule = build_schedule(scenario);
    CHECK(sim::simulate(schedule, sim::cost_schedule(schedule, platform, scenario.cluster)).step > 0);
  }
}

void check_comparison() {
  const TempDir folder;
  const std::string path = folder.file("gpu.toml");
  sim::write_platform(path, calibration().platform);
  const sim::Platform platform = sim::read_platform(path);
  Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "bf16", 1, 2);
  scenario.cluster.ranks_per_device = 1;
  scenario.compare.modes = {"plain", "overlap_grad_reduce"};
  scenario.compare.ranks = {2};
  scenario.compare.repeats = 2;
  const compare::Result run = compare::run(
      scenario, platform, fake_gpu(), [](const std::string&) {}, [] { return false; });
  CHECK(run.complete);
  CHECK(run.comparison.on_gpu);
  REQUIRE(run.comparison.rows.size() == 2);
  for (const ComparisonRow& row : run.comparison.rows) {
    INFO(row.mode << " at " << row.ranks);
    CHECK(row.predicted_ms > 0);
    CHECK(row.measured_ms.size() == 2);
    CHECK(row.measured_median_ms() > 0);
    // No host reading corrects it.
    CHECK(row.core_speed == 1);
    CHECK(row.lost_pct == 0);
    CHECK(row.predicted_as_calibrated_ms == row.predicted_ms);
    for (const OperationTime& operation : row.operations) CHECK(operation.predicted_ms > 0);
    CHECK(row.loss > 0);
  }
  CHECK(run.comparison.rows[0].loss == run.comparison.rows[1].loss);
  CHECK(has_line(run.comparison.notes, "ranks_per_device is not looked at"));
  // Kernels of both ranks alternate on one GPU: in the prediction no two are concurrent.
  const compare::RowTimelines& plain = run.timelines[0];
  std::vector<std::pair<Picoseconds, Picoseconds>> busy;
  for (const TimelineRow& row : plain.predicted.rows)
    for (const BoundProgram& program : plain.predicted_step.programs)
      if (program.rank == row.rank && !is_communication(program.work_of(row.op))) busy.push_back({row.start, row.end});
  std::sort(busy.begin(), busy.end());
  REQUIRE(busy.size() > 10);
  for (std::size_t i = 1; i < busy.size(); ++i) CHECK(busy[i].first >= busy[i - 1].second);
}

// Checks that an interrupted calibration repeats only the probe in which it was killed, and gives the results of an
// uninterrupted one.
void check_kept() {
  struct Killed {};
  const sim::Platform given = plausible_platform();
  const TempDir folder;
  int made = 0, steps = 0, last = INT_MAX;
  exec::Machine machine = simulated_gpu(given);
  machine.make = [&, make = machine.make](const VerifiedSchedule& verified, const exec::RunOptions& links) {
    if (++made > last) throw Killed();
    steps += verified.schedule.name == "plain";
    return make(verified, links);
  };
  const auto calibrated = [&] {
    calibrate::Notebook notebook(folder.file("gpu.toml.partial"), {});
    return calibrate::calibrate_gpu(
        machine, tiny_gpu_sizes(), [](const std::string&) {}, {}, &notebook);
  };
  {
    calibrate::Notebook in_memory;
    calibrate::calibrate_gpu(
        machine, tiny_gpu_sizes(), [](const std::string&) {}, {}, &in_memory);
  }
  const int all = std::exchange(made, 0), all_steps = std::exchange(steps, 0);
  REQUIRE(all_steps == std::ssize(tiny_gpu_sizes().steps) - 1);
  last = 6;  // in the third of the training steps, after the device and the overheads
  CHECK_THROWS_AS(calibrated(), Killed);
  CHECK(steps > 0);
  CHECK(steps < all_steps);
  last = made + all - 12;  // in the last point of the compute's slowdown by communication
  CHECK_THROWS_AS(calibrated(), Killed);
  CHECK(steps == all_steps);
  last = INT_MAX;
  made = 0;
  const calibrate::Calibration resumed = calibrated();
  CHECK(steps == all_steps);
  CHECK(made < 30);
  for (std::size_t c = 0; c < sim::kDemandClasses; ++c)
    for (const sim::Curve* curve : {&resumed.platform.gpu->beside_moving[c], &resumed.platform.gpu->beside_copying[c]})
      CHECK(curve->source.kind == "measured");
  CHECK(resumed.platform.costs.size() == calibration().platform.costs.size());
}

// With constants a GEMM takes less power of a GPU than in any training.
class WatchedGpu final : public SimulatedGpu {
 public:
  using SimulatedGpu::SimulatedGpu;
  ~WatchedGpu() override {
    if (!schedule_.name.starts_with("probe_")) return;  // a training step has weights, and activations of its own
    for (const Operation& operation : schedule_.operations)
      if (std::holds_alternative<Gemm>(operation.work))
        for (const Access& access : operation.accesses)
          if (access.mode == AccessMode::read)
            check_varied(schedule_.tensors[access.view.tensor].places.front().storage);
  }
  static inline int watched = 0;

 private:
  void check_varied(StorageId id) {
    const Storage& storage = schedule_.storages[id];
    INFO(schedule_.name << ", " << storage.name);
    CHECK(storage.kind == BufferKind::parameter);  // no operation overwrites it
    REQUIRE(storage.dtype == Dtype::bf16);
    const auto values = memory(0).view<std::uint16_t>(schedule_, id, 0, storage.elements);
    const std::set<std::uint16_t> distinct(values.begin(), values.end());
    CHECK(std::ssize(distinct) > std::min<std::int64_t>(storage.elements, 1000) / 2);
    ++watched;
  }
};

void check_operands() {
  const sim::Platform given = plausible_platform();
  const exec::Machine machine = {[&given](const VerifiedSchedule& verified, const exec::RunOptions& links) {
                                   return std::make_unique<WatchedGpu>(verified, given, links, Network::links);
                                 },
                                 3};
  calibrate::calibrate_gpu(machine, tiny_gpu_sizes(), [](const std::string&) {});
  CHECK(WatchedGpu::watched > 30);
}

void check_failures() {
  const sim::Platform given = plausible_platform();
  const exec::Machine machine = simulated_gpu(given);
  exec::Machine failing = machine;
  failing.make = [&](const VerifiedSchedule& verified, const exec::RunOptions& links) {
    if (verified.schedule.name == "probe_transfers") throw runtime_failure("out of luck");
    return machine.make(verified, links);
  };
  const calibrate::Calibration left = calibrate::calibrate_gpu(failing, tiny_gpu_sizes(), [](const std::string&) {});
  CHECK(has_line(left.notes, "copies: not measured, out of luck"));
  CHECK(has_line(left.notes, "compute concurrent with communication: not measured, out of luck"));
  CHECK_FALSE(left.platform.costs.contains("copy_engine"));
  CHECK(left.platform.costs.size() + 1 == given.costs.size());
  const TempDir folder;
  const std::string path = folder.file("left.toml");
  sim::write_platform(path, left.platform);
  const sim::Platform read = sim::read_platform(path);
  CHECK(read.gpu->beside_moving[0].source.kind == "assumed");
  CHECK(read.costs.contains("move_all_gather_bf16"));
}

}  // namespace

// The sections run in one process: they share a calibration of the emulated device, which takes most of their time.
TEST_CASE("a GPU's calibration", "[cuda][calibrate][processes]") {
  SECTION("calibrating the simulator's own model of a GPU finds what it was given") check_simulated_gpu();
  SECTION("calibrating the simulator's own NCCL finds what it was given") check_simulated_nccl();
  SECTION("GPUs of a process each are calibrated and compared with") check_processes();
  SECTION("a GPU's platform has what every mode and layout needs") check_completeness();
  SECTION("a GPU's platform is compared with, through its file") check_comparison();
  SECTION("what fails in calibrating a GPU is said, and the rest is kept") check_failures();
  SECTION("a calibration that is killed goes on with what it has measured") check_kept();
  SECTION("GEMMs are measured with numbers that vary") check_operands();
}

TEST_CASE("a GPU is not calibrated where there is none", "[calibrate]") {
  CHECK_THROWS_WITH(calibrate::calibrate_gpu(exec::host_machine(1), tiny_gpu_sizes(), [](const std::string&) {}),
                    Catch::Contains("expected a GPU"));
}

}  // namespace stretto::testing
#endif
