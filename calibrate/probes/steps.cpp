#include <map>

#include "base/rng.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "exec/data.hpp"
#include "exec/model_state.hpp"
#include "model/overlap/overlap.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

struct Shape {
  std::int64_t hidden, heads, seq, micro_batch, vocab;
};
// Spread over the sizes that train in reasonable time on a CPU. Two layers each, so that a layer's operations find the
// caches as another layer leaves them.
constexpr Shape kShapes[] = {
    {128, 4, 128, 2, 256}, {128, 2, 64, 16, 1024}, {192, 6, 96, 4, 512},  {256, 4, 128, 4, 256},  {256, 8, 256, 4, 2048},
    {320, 5, 64, 4, 768},  {384, 6, 256, 2, 256},  {384, 12, 128, 8, 512}, {512, 8, 128, 2, 4096}, {512, 16, 256, 4, 256},
    {640, 10, 64, 4, 256}, {768, 12, 128, 4, 512}, {1024, 16, 128, 2, 256},
};
constexpr Shape kSharedShapes[] = {{256, 4, 128, 4, 256}, {512, 8, 128, 4, 1024}};

Scenario scenario_of(const Shape& shape, std::int64_t ranks, bool bf16) {
  Scenario scenario;
  scenario.name = "probe";
  scenario.model = {2, shape.hidden, shape.heads, 4 * shape.hidden, shape.seq, shape.seq, shape.vocab, shape.vocab};
  scenario.parallel.data_parallel_size = ranks;
  scenario.overlap.grad_reduce_in_fp32 = !bf16;
  scenario.training.micro_batch_size = shape.micro_batch;
  scenario.training.global_batch_size = shape.micro_batch * ranks;
  return scenario;
}

// One sample per operation template: medians over instances, ranks and repeats.
void run_shape(const Shape& shape, int ranks, int cores, int repeats, std::vector<Sample>& samples) {
  const Scenario scenario = scenario_of(shape, ranks, false);
  const Schedule schedule = build_schedule(scenario);
  host::HostOptions options;
  options.cores_per_device = cores;
  const ProbeRun run = run_probe(schedule, options, 2, repeats, [&](host::HostExecutor& executor) {
    const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
    exec::initialise_state(schedule, scenario, memory_of);
    std::vector<std::byte> text(1 << 16);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = std::byte(random_bits(1, 2, i) & 0xff);
    exec::write_batch(schedule, scenario, exec::TokenSource::parse(std::move(text), "probe.txt"), 0, memory_of);
    exec::write_hyper(schedule, scenario, 0, memory_of);
  });
  std::map<OpId, std::vector<double>> times_us;
  for (const Timeline& timeline : run.timelines)
    for (const TimelineRow& row : timeline.rows) times_us[run.programs[static_cast<std::size_t>(row.rank)].ops[row.op].op].push_back(to_us(row.end - row.start));
  for (auto& [op, times] : times_us) {
    if (is_communication(schedule.operations[op].work)) continue;
    sim::WorkCost cost = sim::work_cost(schedule, schedule.operations[op]);
    samples.push_back({cost.key, cost.features, cost.cls, median_of(times), spread_pct_of(times)});
  }
}

}  // namespace

std::vector<Sample> probe_steps(const std::function<void(const std::string&)>& progress) {
  std::vector<Sample> samples;
  for (const Shape& shape : kShapes) {
    progress("training step, hidden " + std::to_string(shape.hidden) + ", tokens " + std::to_string(shape.seq * shape.micro_batch));
    run_shape(shape, 1, 1, 7, samples);
  }
  return samples;
}

std::vector<Sample> probe_shared_steps(int ranks, int cores) {
  std::vector<Sample> samples;
  for (const Shape& shape : kSharedShapes) run_shape(shape, ranks, cores, 7, samples);
  return samples;
}

std::vector<Sample> probe_unshared_steps() { return probe_shared_steps(1, 1); }

}  // namespace stretto::calibrate
