#include "calibrate/probes/run.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bf16.hpp"
#include "base/rng.hpp"
#include "base/statistics.hpp"
#include "base/steal.hpp"
#include "model/verify/verify.hpp"

namespace stretto::calibrate {
namespace {

constexpr std::size_t kPeriod = 1'000'003;  // a prime, so that rows of a matrix differ

template <class T, class Make>
void repeat_numbers(std::span<T> to, std::vector<T>& numbers, Make make) {
  const std::size_t needed = std::min(kPeriod, to.size());
  while (numbers.size() < needed) numbers.push_back(make(normal(0, 0, numbers.size())));
  for (std::size_t at = 0; at < to.size(); at += kPeriod)
    std::copy_n(numbers.begin(), std::min(kPeriod, to.size() - at), to.begin() + static_cast<std::ptrdiff_t>(at));
}

// Wraps another executor and asks before each run whether to go on.
class EndingExecutor final : public exec::Executor {
 public:
  EndingExecutor(std::unique_ptr<exec::Executor> inner, MayEnd may_end)
      : inner_(std::move(inner)), may_end_(std::move(may_end)) {}
  Timeline run(int steps) override {
    may_end_();
    return inner_->run(steps);
  }
  Timeline run_without_rows(int steps) override {
    may_end_();
    return inner_->run_without_rows(steps);
  }
  bool is_here(std::int64_t rank) const override { return inner_->is_here(rank); }
  const std::vector<BoundProgram>& programs() const override { return inner_->programs(); }
  std::optional<Device> device() const override { return inner_->device(); }
  std::vector<std::string> notes() const override { return inner_->notes(); }
  host::RankMemory& memory(std::int64_t rank) override { return inner_->memory(rank); }
  void upload(Contents contents) override { inner_->upload(contents); }
  void download(Contents contents) override { inner_->download(contents); }

 private:
  std::unique_ptr<exec::Executor> inner_;
  MayEnd may_end_;
};

}  // namespace

Machine ending(Machine machine, MayEnd may_end) {
  if (!may_end) return machine;
  const auto make = [inner = machine.make, may_end](const VerifiedSchedule& verified,
                                                    RunOptions options) -> std::unique_ptr<exec::Executor> {
    may_end();
    return std::make_unique<EndingExecutor>(inner(verified, std::move(options)), may_end);
  };
  return {make, machine.steps, machine.processes};
}

void fill_randomly(const Schedule& schedule, exec::Executor& executor) {
  std::vector<Bf16> narrow;
  std::vector<float> wide;
  host::RankMemory& memory = executor.memory(0);
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    if (storage.kind != BufferKind::parameter || !memory.has(id)) continue;
    if (storage.dtype == Dtype::bf16)
      repeat_numbers(memory.view<Bf16>(schedule, id, 0, storage.elements), narrow, [](double x) { return to_bf16(x); });
    else
      repeat_numbers(memory.view<float>(schedule, id, 0, storage.elements), wide,
                     [](double x) { return static_cast<float>(x); });
  }
  executor.upload(exec::Executor::Contents::state);
}

ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const RunOptions& options, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare) {
  const VerifiedSchedule verified = plan_and_verify(schedule);
  const std::unique_ptr<exec::Executor> executor = machine.make(verified, options);
  if (prepare) prepare(*executor);
  if (warmup > 0) executor->run(warmup);
  ProbeRun run;
  run.programs = executor->programs();
  Undisturbed undisturbed(machine.processes ? 0 : 3);
  undisturbed([&] {
    run.timelines.clear();
    for (int i = 0; i < repeats; ++i) run.timelines.push_back(executor->run(machine.steps));
  });
  return run;
}

TimesByOp communication_times_us(const Schedule& schedule, const ProbeRun& run) {
  TimesByOp times_us;
  for (const Timeline& timeline : run.timelines)
    for (const TimelineRow& row : timeline.rows) {
      if (row.rank != 0) continue;
      const OpId op = run.programs.front().ops[row.op].op;
      if (is_communication(schedule.operations[op].work)) times_us[op].push_back(to_us(row.end - row.transfer));
    }
  return times_us;
}

std::vector<Sample> compute_samples(const Schedule& schedule, const TimesByOp& times_us) {
  std::vector<Sample> samples;
  for (const auto& [op, times] : times_us)
    if (!is_communication(schedule.operations[op].work))
      samples.push_back(sample_of(sim::work_cost(schedule, schedule.operations[op]), median(times), times));
  return samples;
}

Sample sample_of(sim::WorkCost cost, double us, const std::vector<double>& times_us) {
  return {std::move(cost.key), std::move(cost.features), cost.cls, us, spread_pct(times_us)};
}

}  // namespace stretto::calibrate
