#include "sweep/family.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/memory.hpp"
#include "model/acting_overlap.hpp"
#include "model/build_schedule.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/verify/verify.hpp"
#include "predict/predict_step.hpp"
#include "report/live_memory.hpp"
#include "report/memory.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::sweep {
namespace {

constexpr std::int64_t kLayers = 3;        // of each stage: the one in the middle has neighbours of its own kind
constexpr std::int64_t kMicroBatches = 4;  // the ones in the middle meet no data-parallel communication

// Returns the smallest number of data-parallel ranks that share experts as the scenario says. Ranks that shard
// parameters or gradients communicate in every micro-batch, so that they keep their number.
std::int64_t least_data_parallel_size(const Parallel& parallel) {
  if (parallel.shards_gradients()) return parallel.data_parallel_size;
  const std::int64_t experts = parallel.expert_model_parallel_size * parallel.expert_tp();
  return experts / std::gcd(experts, parallel.context_parallel_size * parallel.tensor_model_parallel_size);
}

// Returns the scenario with a pipeline of at most two stages, whose layers are all of one kind.
Scenario small_pipeline(Scenario scenario, const LayerSpec& kind, std::int64_t layers_of_stage,
                        std::int64_t data_parallel_size, std::int64_t micro_batches) {
  Parallel& parallel = scenario.parallel;
  parallel.pipeline_model_parallel_size = std::min<std::int64_t>(parallel.pipeline_model_parallel_size, 2);
  parallel.virtual_pipeline_model_parallel_size = 1;
  parallel.pipeline_schedule = PipelineSchedule::one_f_one_b;
  parallel.microbatch_group_size_per_vp_stage = 0;
  parallel.num_layers_in_first_pipeline_stage = parallel.num_layers_in_last_pipeline_stage = 0;
  parallel.account_for_embedding_in_pipeline_split = parallel.account_for_loss_in_pipeline_split = false;
  parallel.pipeline_model_parallel_layout.clear();
  if (data_parallel_size % parallel.num_distributed_optimizer_instances != 0)
    parallel.num_distributed_optimizer_instances = 1;
  parallel.data_parallel_size = data_parallel_size;
  scenario.model.num_layers = layers_of_stage * parallel.pipeline_model_parallel_size;
  scenario.model.layers.assign(static_cast<std::size_t>(scenario.model.num_layers), kind);
  scenario.training.global_batch_size = micro_batches * scenario.training.micro_batch_size * data_parallel_size;
  Overlap& overlap = scenario.overlap;
  overlap.overlap_p2p_comm = overlap.overlap_p2p_comm_warmup_flush = overlap.defer_embedding_wgrad_compute = false;
  overlap.align_grad_reduce = overlap.align_param_gather = overlap.overlap_param_gather_with_optimizer_step = false;
  overlap.overlap_moe_expert_parallel_comm = overlap.delay_wgrad_compute = false;
  return scenario;
}

// Layers that are recomputed in groups, or only some of them.
bool recomputes_unevenly(const Recompute& recompute) {
  return recompute.granularity == Recompute::Granularity::full &&
         (recompute.method == Recompute::Method::block || recompute.num_layers > 1);
}

// A small pipeline that has been simulated.
struct Simulated {
  Schedule schedule;
  sim::Costs costs;
  sim::SimResult result;
};

Simulated built(const Scenario& scenario, const sim::Platform& platform) {
  Simulated s{build_schedule(scenario, free_memory_bytes()), {}, {}};
  s.costs = sim::cost_schedule(s.schedule, platform, scenario.cluster, 1, scenario.framework, scenario.training);
  s.costs.host = {};  // a process that is late at one time may be early at another
  return s;
}
Simulated simulated(const Scenario& scenario, const sim::Platform& platform) {
  Simulated s = built(scenario, platform);
  VerifiedSchedule verified = plan_and_verify(std::move(s.schedule));
  s.schedule = std::move(verified.schedule);
  s.result = sim::simulate(s.schedule, static_cast<BoundStep&&>(verified), s.costs);
  return s;
}

// Returns the rows of a program, [operation]; the timeline has those of all programs, in order.
std::vector<const TimelineRow*> rows_of(const Simulated& s, const BoundProgram& program) {
  std::size_t begin = 0;
  for (const BoundProgram& before : s.result.programs) {
    if (&before == &program) break;
    begin += before.ops.size();
  }
  std::vector<const TimelineRow*> rows(program.ops.size(), nullptr);
  for (const TimelineRow& row : std::span(s.result.timeline.rows).subspan(begin, program.ops.size()))
    rows[row.op] = &row;
  return rows;
}

// Returns the bytes outside plans that any pipeline has. NCCL's depend on the messages between its stages.
std::int64_t reserved_by_all(const DeviceMemory& memory) {
  std::int64_t sum = 0;
  for (const OutsidePlan& part : memory.outside_plan)
    if (part.what != "NCCL") sum += part.bytes;
  return sum;
}

// Returns the most bytes that are alive at once on a rank of the role.
std::int64_t most_alive(const Simulated& s, std::size_t role) {
  std::int64_t most = 0;
  for (const BoundProgram& program : s.result.programs) {
    if (program.role != role) continue;
    std::vector<const TimelineRow*> rows = rows_of(s, program);
    std::erase(rows, nullptr);
    for (const LiveMemory& live : live_memory(s.schedule, program, rows)) most = std::max(most, live.bytes);
  }
  return most;
}

// The operations of one micro-batch on a lane, in order, in which those of the stage's middle layer are two runs.
class MiddleLayer {
 public:
  MiddleLayer(const Simulated& s, const BoundProgram& program, const std::vector<std::uint32_t>& lane,
              std::int64_t layer, std::int64_t micro_batch)
      : s_(s), program_(program) {
    for (const std::uint32_t op : lane)
      if (program.ops[op].micro_batch == micro_batch) ops_.push_back(op);
    const auto is_middle = [&](std::size_t i) { return program.ops[ops_[i]].layer == layer; };
    const auto run_from = [&](std::size_t begin) {
      while (begin < ops_.size() && !is_middle(begin)) ++begin;
      std::size_t end = begin;
      while (end < ops_.size() && is_middle(end)) ++end;
      return std::pair(begin, end);
    };
    forward_ = run_from(0);
    backward_ = run_from(forward_.second);
  }

  bool is_whole() const { return backward_.first < backward_.second && backward_.second < ops_.size(); }
  Picoseconds forward() const { return alone(forward_.first, forward_.second); }
  Picoseconds backward() const { return alone(backward_.first, backward_.second); }
  Picoseconds wgrad() const {
    Picoseconds sum = 0;
    for (std::size_t i = backward_.first; i < backward_.second; ++i)
      if (s_.schedule.operations[program_.ops[ops_[i]].op].phase == Phase::wgrad) sum += cost(i);
    return sum;
  }
  Picoseconds before() const { return alone(0, forward_.first); }
  Picoseconds between() const { return alone(forward_.second, backward_.first); }
  Picoseconds after() const { return alone(backward_.second, ops_.size()); }
  using Rows = std::vector<const TimelineRow*>;
  Picoseconds forward_in_row(const Rows& rows) const { return to_next(rows, forward_); }
  Picoseconds backward_in_row(const Rows& rows) const { return to_next(rows, backward_); }
  Picoseconds forward_span(const Rows& rows) const { return span(rows, forward_); }
  Picoseconds backward_span(const Rows& rows) const { return span(rows, backward_); }

 private:
  using Run = std::pair<std::size_t, std::size_t>;  // [first, second) of ops_
  Picoseconds cost(std::size_t i) const { return s_.costs.of(program_.rank).compute[program_.ops[ops_[i]].op].alone; }
  Picoseconds alone(std::size_t begin, std::size_t end) const {
    Picoseconds sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += cost(i);
    return sum;
  }
  Picoseconds to_next(const Rows& rows, const Run& run) const {
    const TimelineRow *first = rows[ops_[run.first]], *next = rows[ops_[run.second]];
    return first != nullptr && next != nullptr ? next->start - first->start : 0;
  }
  Picoseconds span(const Rows& rows, const Run& run) const {
    const TimelineRow *first = rows[ops_[run.first]], *last = rows[ops_[run.second - 1]];
    return first != nullptr && last != nullptr ? last->end - first->start : 0;
  }

  const Simulated& s_;
  const BoundProgram& program_;
  std::vector<std::uint32_t> ops_;
  Run forward_{0, 0}, backward_{0, 0};
};

// The least of several micro-batches; 0 where there was none.
class Least {
 public:
  void take(Picoseconds time) { least_ = std::min(least_, time); }
  Picoseconds get() const { return least_ == kNone ? 0 : std::max<Picoseconds>(0, least_); }

 private:
  static constexpr Picoseconds kNone = std::numeric_limits<Picoseconds>::max();
  Picoseconds least_ = kNone;
};

const std::vector<std::uint32_t>& busiest_lane(const Simulated& s, const BoundProgram& program) {
  const auto compute = [&](const std::vector<std::uint32_t>& lane) {
    Picoseconds sum = 0;
    for (const std::uint32_t op : lane) sum += s.costs.of(program.rank).compute[program.ops[op].op].alone;
    return sum;
  };
  return *std::max_element(program.lanes.begin(), program.lanes.end(),
                           [&](const auto& a, const auto& b) { return compute(a) < compute(b); });
}

// The times that a stage of the small pipeline shows: its layer, and what it does before, between and after its
// layers.
struct StageTimes {
  LayerTimes layer;
  Picoseconds before = 0, between = 0, after = 0;
};
StageTimes stage_times(const Simulated& s, const BoundProgram& program, std::int64_t stage) {
  const std::vector<const TimelineRow*> rows = rows_of(s, program);
  const std::vector<std::uint32_t>& lane = busiest_lane(s, program);
  const std::int64_t middle = stage * kLayers + kLayers / 2;
  Least forward, backward, wgrad, forward_span, backward_span, forward_in_row, backward_in_row, before, between, after;
  for (std::int64_t micro_batch = 1; micro_batch < kMicroBatches; ++micro_batch) {
    const MiddleLayer one(s, program, lane, middle, micro_batch);
    if (!one.is_whole()) continue;
    forward.take(one.forward());
    backward.take(one.backward());
    wgrad.take(one.wgrad());
    forward_span.take(one.forward_span(rows));
    backward_span.take(one.backward_span(rows));
    forward_in_row.take(one.forward_in_row(rows));
    backward_in_row.take(one.backward_in_row(rows));
    before.take(one.before() - one.forward());
    between.take(one.between() - one.forward() - one.backward());
    after.take(one.after() - one.backward());
  }
  LayerTimes layer{.forward = forward.get(), .backward = backward.get(), .wgrad = wgrad.get()};
  layer.forward_span = std::max(layer.forward, forward_span.get());
  layer.backward_span = std::max(layer.backward, backward_span.get());
  layer.forward_in_row = std::max(layer.forward_span, forward_in_row.get());
  layer.backward_in_row = std::max(layer.backward_span, backward_in_row.get());
  return {layer, before.get(), between.get(), after.get()};
}

}  // namespace

bool has_family(const Scenario& scenario, const sim::Platform& platform) {
  return platform.accelerator.has_value() && scenario.cluster.ranks_per_device == 1 &&
         scenario.parallel.cp_comm_type.size() == 1;
}

std::int64_t micro_batches_of_memory(const Scenario& scenario) {
  return std::min(kMicroBatches, scenario.num_microbatches());
}

TimeFamily time_family(const Scenario& scenario, const sim::Platform& platform) {
  Scenario lighter = scenario;
  // A bound may leave out the recomputation of layers when only some of them repeat their forward pass.
  if (recomputes_unevenly(scenario.training.recompute) &&
      scenario.training.recompute.method == Recompute::Method::block)
    lighter.training.recompute = {};
  else
    lighter.training.recompute.num_layers = 1;
  const bool in_rows =
      !overlaps_experts(scenario) && scenario.parallel.pipeline_schedule == PipelineSchedule::one_f_one_b;
  TimeFamily family;
  const std::int64_t data_parallel_size = least_data_parallel_size(scenario.parallel);
  const std::vector<LayerSpec> kinds = scenario.model.layer_kinds();
  for (const LayerSpec& kind : kinds) {
    const Simulated s = simulated(small_pipeline(lighter, kind, kLayers, data_parallel_size, kMicroBatches), platform);
    StageTimes first, last;
    for (const BoundProgram& program : s.result.programs) {
      const StageTimes times = stage_times(s, program, static_cast<std::int64_t>(program.role));
      StageTimes& of_role = program.role == 0 ? first : last;
      // Ranks of a stage differ where a causal mask gives them unequal work: the slowest makes the bound.
      if (times.layer.forward + times.layer.backward >= of_role.layer.forward + of_role.layer.backward) of_role = times;
    }
    if (s.schedule.programs.size() == 1) last = first;
    LayerTimes layer = first.layer;
    if (!in_rows || overlaps_shared_expert(scenario)) {
      layer.forward_in_row = layer.forward_span = layer.forward;
      layer.backward_in_row = layer.backward_span = layer.backward;
    }
    family.layers[kind] = layer;
    const bool is_first_kind = &kind == &kinds.front();
    const auto least = [&](Picoseconds& known, Picoseconds time) {
      known = is_first_kind ? time : std::min(known, time);
    };
    least(family.embedding_forward, first.before);
    least(family.embedding_backward, first.after);
    least(family.head, last.between);
  }
  return family;
}

MemoryFamily memory_family(const Scenario& scenario, const sim::Platform& platform) {
  Scenario lighter = scenario;
  const bool unevenly = recomputes_unevenly(scenario.training.recompute);
  if (unevenly)
    lighter.training.recompute.method = Recompute::Method::uniform, lighter.training.recompute.num_layers = 1;
  const std::int64_t micro_batches = micro_batches_of_memory(scenario);
  MemoryFamily family;
  bool is_first_kind = true;
  for (const LayerSpec& kind : scenario.model.layer_kinds()) {
    // [layers of a stage − 2][stage] bytes, and those of them that are always there
    double bytes[2][2] = {}, state[2][2] = {};
    for (const std::int64_t more : {0, 1}) {
      const Scenario small =
          small_pipeline(lighter, kind, kLayers - 1 + more, scenario.parallel.data_parallel_size, micro_batches);
      Simulated s = built(small, platform);
      VerifiedSchedule verified = plan_and_verify(std::move(s.schedule));
      s.schedule = std::move(verified.schedule);
      const DeviceMemory memory =
          predict::memory_of(s.schedule, verified.plan, platform, small.training, small.framework, verified.programs);
      const std::int64_t reserved = reserved_by_all(memory);
      family.reserved = is_first_kind && more == 0 ? reserved : std::min(family.reserved, reserved);
      for (std::size_t role = 0; role < memory.roles.size(); ++role) {
        state[more][role] = double(memory.roles[role].state);
        bytes[more][role] = double(memory.roles[role].allocated());
      }
      if (!small.framework.memory.is_known) {
        // A plan may leave gaps that another plan does not have: what is alive at once is the bound.
        s.result = sim::simulate(s.schedule, static_cast<BoundStep&&>(verified), s.costs);
        for (std::size_t role = 0; role < memory.roles.size(); ++role) bytes[more][role] = double(most_alive(s, role));
      }
      if (memory.roles.size() == 1) bytes[more][1] = bytes[more][0], state[more][1] = state[more][0];
    }
    // The first of two stages holds two micro-batches at once, the last holds one.
    const auto two_at_once = double(scenario.parallel.pipeline_model_parallel_size > 1 && micro_batches > 1 ? 2 : 1);
    for (const int stage : {0, 1}) {
      StageBytes& of = stage == 0 ? family.first : family.last;
      const double slope = bytes[1][stage] - bytes[0][stage], own = state[1][stage] - state[0][stage];
      const double each = std::max(0., (slope - own) / (stage == 0 ? two_at_once : 1));
      of.state[kind] = slope - each * (stage == 0 ? two_at_once : 1);
      of.activations[kind] = unevenly ? 0 : each;
      const double constant = bytes[1][stage] - double(kLayers) * slope;
      of.constant = is_first_kind ? constant : std::min(of.constant, constant);
    }
    is_first_kind = false;
  }
  return family;
}

}  // namespace stretto::sweep
