#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/rng.hpp"
#include "base/steal.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "exec/data.hpp"
#include "exec/model_state.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/verify.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

struct Shape {
  std::int64_t hidden, heads, seq, micro_batch, vocab;
  std::int64_t query_groups = 0;  // above 0: Llama's style, else GPT-2's
};
// Spread over the sizes that train in reasonable time on a CPU. Two layers each, so that a layer's operations find the
// caches as another layer leaves them.
constexpr Shape kShapes[] = {
    {128, 4, 128, 2, 256},    {128, 2, 64, 16, 1024, 1}, {192, 6, 96, 4, 512},  {256, 4, 128, 4, 256},
    {256, 8, 256, 4, 2048},   {320, 5, 64, 4, 768, 1},   {384, 6, 256, 2, 256}, {384, 12, 128, 8, 512},
    {512, 8, 128, 2, 4096},   {512, 16, 256, 4, 256, 4}, {640, 10, 64, 4, 256}, {768, 12, 64, 4, 512},
    {256, 4, 128, 1, 512, 2}, {640, 10, 128, 1, 256, 5},
};
// Which of them also run with a rank on every core and with two: sharing is a ratio to the same step alone.
constexpr std::size_t kShared[] = {3, 6};
// Run by two ranks that take turns on one core, for what only they do: cut the model (statistics of the vocabulary,
// what is left of communication in pieces), or reduce gradients in bf16.
constexpr Shape kCut[] = {{64, 2, 128, 2, 256}, {64, 2, 64, 8, 1024},  {64, 2, 256, 2, 4096},
                          {64, 2, 96, 4, 2048}, {256, 2, 128, 4, 256}, {384, 2, 128, 8, 256}};
constexpr Shape kReduced[] = {{64, 2, 64, 1, 256}, {192, 2, 32, 1, 256}, {512, 4, 32, 1, 1024}};
// Run once more with dropout, for what is then other than above.
constexpr std::size_t kDropping[] = {0, 2, 3, 4, 6, 8, 10};
constexpr const char* kOfDropping[] = {"dropout", "attention_dropout"};
constexpr const char* kOfCut[] = {"vocab_stats", "copy", "local_reduce"};
constexpr const char* kOfReduced[] = {"cast"};
constexpr int kTurns = 6;
constexpr std::int64_t kCacheBytes = 64 << 20;  // more than the last-level cache that a core of today can use

Scenario scenario_of(const Shape& shape, std::int64_t ranks, std::int64_t tp) {
  Scenario scenario;
  scenario.name = "probe";
  scenario.model = {2, shape.hidden, shape.heads, 4 * shape.hidden, shape.seq, shape.seq, shape.vocab, shape.vocab};
  if (shape.query_groups > 0) {
    scenario.model = in_llama_style(scenario.model);
    scenario.model.num_query_groups = shape.query_groups;
    scenario.model.ffn_hidden_size =
        (8 * shape.hidden / 3 + 63) / 64 * 64;  // as Llama: three matrices cost what two did
  }
  scenario.parallel.data_parallel_size = ranks / tp;
  scenario.parallel.tensor_model_parallel_size = tp;
  scenario.training.micro_batch_size = shape.micro_batch;
  scenario.training.global_batch_size = shape.micro_batch * ranks / tp;
  scenario.parallel.sequence_parallel = scenario.overlap.tp_comm_overlap = tp > 1;
  scenario.overlap.tp_comm_overlap_cfg["proj_fprop"] = {TpMethod::ring_exchange};
  return scenario;
}

// Times do not depend on what the weights are, as long as nothing overflows or becomes denormal; drawing them properly
// would take longer than the probe.
void fill_state(const Schedule& schedule, host::RankMemory& memory) {
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    if (!is_persistent(storage.kind)) continue;
    auto* values = reinterpret_cast<float*>(memory.at(id));
    const bool weights = storage.kind == BufferKind::parameter;
    for (std::int64_t i = 0; i < storage.elements; ++i) values[i] = weights ? float((i * 37) % 101 - 50) * 1e-3f : 0.0f;
  }
}

// One shape, allocated and ready to run. Not movable: the executor refers to the schedule.
struct Step {
  Scenario scenario;
  Schedule schedule;
  std::unique_ptr<host::HostExecutor> executor;
  std::map<OpId, std::vector<double>> times_us;
  bool outgrows_caches = false;

  Step(const Shape& shape, std::int64_t ranks, int cores, std::int64_t tp = 1)
      : Step(scenario_of(shape, ranks, tp), ranks, cores) {}
  Step(Scenario of, std::int64_t ranks, int cores) : scenario(std::move(of)), schedule(build_schedule(scenario)) {
    const MemoryPlan plan = plan_memory(schedule);
    require_verified(schedule, &plan);
    outgrows_caches = plan.peak_bytes() > kCacheBytes;
    host::HostOptions options;
    options.cores_per_device = cores;
    executor = std::make_unique<host::HostExecutor>(schedule, plan, options);
    const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor->memory(rank); };
    for (std::int64_t rank = 0; rank < ranks; ++rank) fill_state(schedule, executor->memory(rank));
    std::vector<std::byte> text(1 << 16);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = std::byte(random_bits(1, 2, i) & 0xff);
    exec::write_batch(schedule, scenario, exec::TokenSource::parse(std::move(text), "probe.txt"), 0, memory_of);
    exec::write_hyper(schedule, scenario, 0, memory_of);
  }

  void run(Undisturbed& undisturbed) {
    // The first of two brings the caches back to what a step leaves behind; a large step does that by itself.
    Timeline timeline;
    undisturbed([&] { timeline = executor->run(outgrows_caches ? 1 : 2); });
    for (const TimelineRow& row : timeline.rows)
      times_us[executor->programs()[static_cast<std::size_t>(row.rank)].ops[row.op].op].push_back(
          to_us(row.end - row.start));
  }
};

using Steps = std::vector<std::unique_ptr<Step>>;

std::vector<Sample> samples_of(const Steps& steps) {
  std::vector<Sample> samples;
  for (const auto& step : steps)
    for (const auto& [op, times] : step->times_us) {
      if (is_communication(step->schedule.operations[op].work)) continue;
      sim::WorkCost cost = sim::work_cost(step->schedule, step->schedule.operations[op]);
      samples.push_back({cost.key, cost.features, cost.cls, median_of(times), spread_pct_of(times)});
    }
  return samples;
}

}  // namespace

StepSamples probe_steps(int cores, const std::function<void(const std::string&)>& progress) {
  Steps alone, filled, shared, cut, reduced, dropping;
  for (const Shape& shape : kShapes) alone.push_back(std::make_unique<Step>(shape, 1, cores));
  for (const Shape& shape : kCut) cut.push_back(std::make_unique<Step>(shape, 2, 1, 2));
  for (const Shape& shape : kReduced) {
    Scenario scenario = scenario_of(shape, 2, 1);
    scenario.overlap.grad_reduce_in_fp32 = false;
    reduced.push_back(std::make_unique<Step>(std::move(scenario), 2, 1));
  }
  for (const std::size_t i : kDropping) {
    Scenario scenario = scenario_of(kShapes[i], 1, 1);
    scenario.model.hidden_dropout = scenario.model.attention_dropout = 0.1;
    dropping.push_back(std::make_unique<Step>(std::move(scenario), 1, cores));
  }
  for (const std::size_t i : kShared) {
    if (cores > 1) filled.push_back(std::make_unique<Step>(kShapes[i], cores, cores));
    shared.push_back(std::make_unique<Step>(kShapes[i], 2 * cores, cores));
  }
  SgemmYardstick one(1, cores), all(cores, cores);
  Undisturbed undisturbed(kTurns * static_cast<std::int64_t>(alone.size()));
  std::vector<double> one_GFLOPs, all_GFLOPs;
  for (int turn = 1; turn <= kTurns; ++turn) {
    progress("training steps of " + std::to_string(alone.size()) + " shapes, turn " + std::to_string(turn) + " of " +
             std::to_string(kTurns));
    for (std::size_t i = 0; i < alone.size(); ++i) {
      alone[i]->run(undisturbed);
      if (i % 3 == 2) one_GFLOPs.push_back(one.run_GFLOPs());
    }
    for (const auto& step : cut) step->run(undisturbed);
    for (const auto& step : reduced) step->run(undisturbed);
    for (const auto& step : dropping) step->run(undisturbed);
    for (int again = 0; again < 2; ++again) {  // the ratios rest on few shapes, so these run more often
      for (const auto& step : filled) step->run(undisturbed);
      all_GFLOPs.push_back(all.run_GFLOPs());
      for (const auto& step : shared) step->run(undisturbed);
      all_GFLOPs.push_back(all.run_GFLOPs());
      for (const std::size_t i : kShared) alone[i]->run(undisturbed);
      one_GFLOPs.push_back(one.run_GFLOPs());
    }
  }
  const std::string origin = "sgemm 1024 cubed, between the training steps, ";
  StepSamples samples;
  samples.sgemm_GFLOPs = {median_of(one_GFLOPs), {"measured", origin + "one core busy", spread_pct_of(one_GFLOPs)}};
  samples.sgemm_filled_GFLOPs = {median_of(all_GFLOPs),
                                 {"measured", origin + "all cores busy, of one", spread_pct_of(all_GFLOPs)}};
  samples.alone = samples_of(alone);
  const auto add = [&](const Steps& steps, std::span<const char* const> keys) {
    for (Sample& sample : samples_of(steps))
      if (std::any_of(keys.begin(), keys.end(), [&](const char* key) { return sample.key.starts_with(key); }))
        samples.alone.push_back(std::move(sample));
  };
  add(cut, kOfCut);
  add(reduced, kOfReduced);
  add(dropping, kOfDropping);
  samples.filled = samples_of(filled);
  samples.shared = samples_of(shared);
  return samples;
}

}  // namespace stretto::calibrate
