#include "model/lower/expert_bias.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "model/layout.hpp"
#include "model/lower/builder.hpp"

namespace stretto {
namespace {

std::string suffix_of(const ExpertBias& bias, std::size_t stage) {
  return bias.stages.size() > 1 ? ".stage" + std::to_string(stage) : "";
}

// Returns the latest operation of a program on a lane.
Edge latest_on(const Schedule& schedule, const std::vector<Call>& calls, LaneId lane) {
  for (std::size_t c = calls.size(); c-- > 0;)
    for (std::uint32_t i = calls[c].first + calls[c].count; i-- > calls[c].first;)
      if (const OpId op = schedule.blocks[calls[c].block].ops[i]; schedule.operations[op].lane == lane)
        return {EdgeKind::finish_start, {op, calls[c].layer, calls[c].micro_batch, calls[c].chunk, 0}};
  return {};
}

}  // namespace

ExpertBias add_expert_bias(Schedule& schedule, const Scenario& scenario, ParameterTensors& tensors) {
  const Transformer& model = scenario.model;
  const Parallel& parallel = scenario.parallel;
  const std::vector<Parameter> all = buffers(model);
  ExpertBias bias;
  if (all.empty()) return bias;
  const std::int64_t experts = model.experts.num_moe_experts;
  bias.rate = model.experts.moe_router_bias_update_rate;
  if (parallel.replicas() * parallel.tensor_model_parallel_size > 1)
    bias.tokens = add_group(schedule, "router.loads",
                            {Coord::dp, Coord::dp_instance, Coord::cp, Coord::cp_exchange, Coord::tp}, kCommonLane);
  const StageMap map = stage_map(parallel);
  const std::vector<ModelChunk> chunks = model_chunks(model, parallel);
  std::vector<std::size_t> stage_of(static_cast<std::size_t>(model.num_layers));
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (std::int64_t layer = chunks[c].first_layer; layer < chunks[c].end_layer; ++layer)
      stage_of[static_cast<std::size_t>(layer)] = static_cast<std::size_t>(map.stage_of(std::int64_t(c)));
  bias.stages.resize(static_cast<std::size_t>(map.stages));
  for (const Parameter& one : all) ++bias.stages[stage_of[static_cast<std::size_t>(one.layer)]].layers;

  const Dtype dtype = accumulation_of(schedule.compute_dtype);
  StateMap& state = schedule.state;
  const auto array = static_cast<std::uint32_t>(state.arrays.size());
  state.arrays.push_back({"router.bias", 1, experts, 0, 0, {{0, 1, experts, experts}}});
  std::vector<std::uint32_t> buckets(bias.stages.size());
  for (std::size_t stage = 0; stage < bias.stages.size(); ++stage) {
    ExpertBias::OfStage& of = bias.stages[stage];
    if (of.layers == 0) continue;
    const std::string suffix = suffix_of(bias, stage);
    of.loads = add_tensor(schedule, "router.loads" + suffix, dtype, BufferKind::gradient, of.layers, experts);
    of.bias = add_tensor(schedule, "router.biases" + suffix, dtype, BufferKind::parameter, of.layers, experts);
    buckets[stage] = static_cast<std::uint32_t>(state.buckets.size());
    state.buckets.push_back({stage, Expr(0), of.layers * experts});
    state.buckets.back().window(StatePart::parameters) = {schedule.tensors[of.bias].places.front().storage, 0};
  }
  std::vector<TensorPlace> loads(static_cast<std::size_t>(model.num_layers)), biases(loads);
  std::vector<std::int64_t> next(bias.stages.size());
  // No operation reads the place of a layer without experts.
  const ExpertBias::OfStage& any = bias.stages[stage_of[static_cast<std::size_t>(all.front().layer)]];
  std::fill(loads.begin(), loads.end(), schedule.tensors[any.loads].places.front());
  std::fill(biases.begin(), biases.end(), schedule.tensors[any.bias].places.front());
  for (const Parameter& one : all) {
    const auto layer = static_cast<std::size_t>(one.layer);
    const std::size_t stage = stage_of[layer];
    const std::int64_t offset = next[stage]++ * experts;
    loads[layer] = {schedule.tensors[bias.stages[stage].loads].places.front().storage, offset};
    biases[layer] = {schedule.tensors[bias.stages[stage].bias].places.front().storage, offset};
    state.pieces.push_back({array, buckets[stage], one.layer, offset});
  }
  tensors.parameter["router.bias"] = add_placed_tensor(schedule, "router.bias", 1, experts, std::move(biases));
  tensors.gradient["router.bias"] = add_placed_tensor(schedule, "router.load", 1, experts, std::move(loads));
  return bias;
}

void zero_loads(Schedule& schedule, const ExpertBias& bias, std::size_t stage, LaneId compute, Block& block) {
  if (bias.stages.empty() || bias.stages[stage].layers == 0) return;
  const View loads = whole(schedule, bias.stages[stage].loads);
  add_operation(schedule, block,
                {"router.loads.zero" + suffix_of(bias, stage),
                 Fill{loads.rows * loads.cols, 0},
                 compute,
                 Phase::setup,
                 {write(loads)}});
}

void append_bias_update(Schedule& schedule, const ExpertBias& bias, std::size_t stage, LaneId compute) {
  if (bias.stages.empty() || bias.stages[stage].layers == 0) return;
  const View loads = whole(schedule, bias.stages[stage].loads), biases = whole(schedule, bias.stages[stage].bias);
  const std::string suffix = suffix_of(bias, stage);
  std::vector<Call>& calls = schedule.programs[stage].order;
  const auto place = [&](Operation operation) {
    const BlockId block = add_single(schedule, std::move(operation));
    calls.push_back(call_block(schedule, block));
    return schedule.blocks[block].ops.front();
  };
  const Edge ready = latest_on(schedule, calls, compute);
  std::optional<OpId> sum;
  if (bias.tokens.exists()) {
    sum = place(collective_operation("router.loads.all_reduce" + suffix, bias.tokens, CollectiveKind::all_reduce,
                                     loads.rows * loads.cols, Phase::grad_sync, {accumulate(loads)}));
    calls.back().waits.push_back(ready);
  }
  place({"router.move_bias" + suffix,
         MoveBias{loads.rows, loads.cols, bias.rate},
         compute,
         Phase::optimizer,
         {read(loads), accumulate(biases)}});
  if (sum) calls.back().waits.push_back({EdgeKind::finish_start, {*sum, 0, 0, 0, 0}});
}

}  // namespace stretto
