#include "sweep/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/verify/verify.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/predict_step.hpp"
#include "report/throughput.hpp"
#include "report/units.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::sweep {
namespace {

// The least that profiles give an element: weights and gradients in bf16, two moments and a master that takes two
// bytes more than the weight (store_param_remainders of Megatron-LM's precision-aware optimizer, moments in fp8).
constexpr double kWeightBytes = 2, kGradientBytes = 2, kOptimizerBytes = 4;
constexpr double kCodeBytes = 1;  // of a weight in fp8

// Returns [micro-batch] the computation of one lane of a program.
std::vector<Picoseconds> compute_by_micro_batch(const BoundProgram& program, const std::vector<std::uint32_t>& lane,
                                                const sim::OpCosts& costs, std::int64_t micro_batches) {
  std::vector<Picoseconds> sums(static_cast<std::size_t>(micro_batches));
  for (const std::uint32_t i : lane) {
    const BoundOp& op = program.ops[i];
    sums[static_cast<std::size_t>(op.micro_batch)] += costs.compute[op.op].alone;
  }
  return sums;
}

// Returns bytes of activations below those that the first stage keeps. With 1F1B it has as many micro-batches at once
// as there are stages (Narayanan et al., arXiv 2104.04473); a layer keeps its input, or without recomputation of layers
// also q, k, v, what goes into proj and what comes out of fc1, in two bytes each.
double least_activation_bytes(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  const Transformer& model = scenario.model;
  if (parallel.pipeline_schedule != PipelineSchedule::one_f_one_b || scenario.training.frozen_base) return 0;
  if (scenario.training.compute_dtype() != Dtype::bf16) return 0;
  const double tp = double(parallel.tensor_model_parallel_size);
  const double tokens =
      double(scenario.training.micro_batch_size * model.seq_length) / double(parallel.context_parallel_size);
  const double at_once = double(std::min(parallel.pipeline_model_parallel_size, scenario.num_microbatches()));
  const double layers = double(model.num_layers) / double(parallel.pipeline_model_parallel_size);
  double elements = double(model.hidden_size) / tp;
  const Recompute& recompute = scenario.training.recompute;
  if (recompute.granularity == Recompute::Granularity::none && !model.experts.any() && !model.latent.any())
    elements += double(model.qkv_size() + model.attention_size() + model.fc1_size()) / tp;
  if (recompute.granularity == Recompute::Granularity::full && recompute.method == Recompute::Method::uniform)
    elements /= double(std::max<std::int64_t>(1, recompute.num_layers));
  return 2 * tokens * at_once * layers * elements;
}

bool fits_by(Point& point, double bytes, double device_bytes, const char* what) {
  point.memory_bytes = static_cast<std::int64_t>(bytes);
  point.device_bytes = static_cast<std::int64_t>(device_bytes);
  if (bytes <= device_bytes || device_bytes == 0) return true;
  point.status = Status::does_not_fit;
  point.reason = fmt::format("{} {} of {}", what, size_text(bytes), size_text(device_bytes));
  return false;
}

}  // namespace

double least_bytes(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  const double stages = double(parallel.pipeline_model_parallel_size);
  double dense = 0, of_experts = 0;
  for (const Parameter& parameter : parameters(scenario.model))
    (parameter.experts > 0 ? of_experts : dense) += double(parameter.elements());
  const auto bytes_of = [&](double elements, double ranks_apart, double shards) {
    const double own = elements / (ranks_apart * stages);
    const double weight = scenario.overlap.fp8_param_gather ? kCodeBytes : kWeightBytes;
    return own * (weight / (parallel.shards_parameters() ? shards : 1) +
                  kGradientBytes / (parallel.shards_gradients() ? shards : 1) +
                  kOptimizerBytes / (parallel.shards_optimizer() ? shards : 1));
  };
  const double tp = double(parallel.tensor_model_parallel_size);
  const double state = bytes_of(dense, tp, double(parallel.shards())) +
                       bytes_of(of_experts, double(parallel.expert_model_parallel_size * parallel.expert_tp()),
                                double(std::max<std::int64_t>(1, parallel.expert_dp())));
  return state + least_activation_bytes(scenario);
}

double least_step_ms(const Scenario& scenario, const BoundStep& step, std::int64_t micro_batches,
                     const sim::Costs& costs) {
  const std::int64_t more = scenario.num_microbatches() - micro_batches;
  Picoseconds most = 0;
  for (const BoundProgram& program : step.programs)
    for (const auto& lane : program.lanes) {
      const std::vector<Picoseconds> sums =
          compute_by_micro_batch(program, lane, costs.of(program.rank), micro_batches);
      const Picoseconds least = *std::min_element(sums.begin(), sums.end());
      most = std::max(most, std::accumulate(sums.begin(), sums.end(), Picoseconds{0}) + more * least);
    }
  return to_ms(most);
}

void evaluate(Point& point, const Scenario& scenario, const sim::Platform& platform,
              const std::function<double()>& limit_ms) try {
  point.status = Status::refused;
  point.gpus = scenario.parallel.ranks();
  point.micro_batches = scenario.num_microbatches();
  const double device_bytes = double(platform.memory_bytes);
  const double ranks_per_device = double(std::max<std::int64_t>(1, scenario.cluster.ranks_per_device));
  if (platform.accelerator && !fits_by(point, least_bytes(scenario) * ranks_per_device, device_bytes, "at least"))
    return;
  std::int64_t devices = 0;
  PeakRate peak;
  for (const std::int64_t count : predict::telling_micro_batches(scenario)) {
    const Scenario few = predict::with_micro_batches(scenario, count);
    const Schedule schedule = build_schedule(few, free_memory_bytes());
    const sim::Costs costs = sim::cost_schedule(schedule, platform, few.cluster, 1, few.framework, few.training);
    BoundStep bound = bind_step(schedule);
    point.bound_ms = least_step_ms(scenario, bound, count, costs);
    if (const double limit = limit_ms(); point.bound_ms > limit) {
      point.status = Status::slower;
      point.reason = fmt::format("at least {}", time_text(point.bound_ms));
      return;
    }
    const MemoryPlan plan = plan_memory(schedule, bound);
    const DeviceMemory memory = predict::memory_of(schedule, plan, platform, few.training, few.framework);
    if (!fits_by(point, double(memory.predicted_bytes()), double(memory.device_bytes), "needs")) return;
    require_verified(schedule, &plan);
    point.simulated_micro_batches = count;
    const std::optional<Picoseconds> step = predict::told_step(scenario, schedule, std::move(bound), count, costs);
    if (!step) continue;
    point.step_ms = to_ms(*step);
    devices = point.gpus / schedule.placement.ranks_per_device;
    peak = predict::peak_of(platform, scenario.cluster, schedule, devices);
    break;
  }
  const Throughput rate = throughput_of(scenario, point.step_ms, devices, peak);
  point.tokens_per_s_per_gpu = rate.tokens_per_s_per_device;
  point.mfu = rate.mfu;
  point.status = Status::predicted;
  point.reason.clear();
} catch (const Error& error) {
  if (error.kind() != ErrorKind::input) throw;
  point.status = Status::refused;
  point.reason = error.what();
}

}  // namespace stretto::sweep
