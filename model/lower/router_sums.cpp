#include "model/lower/router_sums.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "model/layout.hpp"
#include "model/lower/builder.hpp"

namespace stretto {
namespace {

std::string suffix_of(const RouterSums& sums, std::size_t stage) {
  return sums.stages.size() > 1 ? ".stage" + std::to_string(stage) : "";
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

RouterSums add_router_sums(Schedule& schedule, const Scenario& scenario, ParameterTensors& tensors) {
  const Transformer& model = scenario.model;
  const Parallel& parallel = scenario.parallel;
  RouterSums sums;
  std::vector<std::size_t> with_experts;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (model.layer(layer).has_experts()) with_experts.push_back(static_cast<std::size_t>(layer));
  if (with_experts.empty()) return sums;
  sums.has_biases = !buffers(model).empty();
  sums.has_tally = model.experts.balances_replicas();
  if (!sums.has_biases && !sums.has_tally) return sums;
  const std::int64_t experts = model.experts.num_moe_experts;
  sums.rate = model.experts.moe_router_bias_update_rate;
  if (sums.has_biases && parallel.replicas() * parallel.tensor_model_parallel_size > 1)
    sums.tokens = add_group(schedule, "router.loads",
                            {Coord::dp, Coord::dp_instance, Coord::cp, Coord::cp_exchange, Coord::tp}, kCommonLane);
  const StageMap map = stage_map(parallel);
  const std::vector<ModelChunk> chunks = model_chunks(model, parallel);
  const auto layers = static_cast<std::size_t>(model.num_layers);
  std::vector<std::size_t> stage_of(layers);
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (std::int64_t layer = chunks[c].first_layer; layer < chunks[c].end_layer; ++layer)
      stage_of[static_cast<std::size_t>(layer)] = static_cast<std::size_t>(map.stage_of(std::int64_t(c)));
  sums.stages.resize(static_cast<std::size_t>(map.stages));
  std::vector<std::int64_t> row_of(layers);  // among the layers with experts of the stage
  for (const std::size_t layer : with_experts) row_of[layer] = sums.stages[stage_of[layer]].layers++;
  const Dtype dtype = accumulation_of(schedule.compute_dtype);
  const auto add_rows = [&](const std::string& name, BufferKind kind, TensorId RouterSums::OfStage::*member) {
    for (std::size_t stage = 0; stage < sums.stages.size(); ++stage)
      if (RouterSums::OfStage& of = sums.stages[stage]; of.layers > 0)
        of.*member = add_tensor(schedule, name + suffix_of(sums, stage), dtype, kind, of.layers, experts);
  };
  // Returns a family over the layers. Each layer has its row.
  const auto add_by_layer = [&](const std::string& name, TensorId RouterSums::OfStage::*member) {
    const auto place = [&](std::size_t layer) {
      const TensorId rows = sums.stages[stage_of[layer]].*member;
      return TensorPlace{schedule.tensors[rows].places.front().storage, row_of[layer] * experts};
    };
    // No operation reads the place of a layer without experts.
    std::vector<TensorPlace> places(layers, place(with_experts.front()));
    for (const std::size_t layer : with_experts) places[layer] = place(layer);
    return add_placed_tensor(schedule, name, 1, experts, std::move(places));
  };
  if (sums.has_tally) {
    add_rows("router.tallies", BufferKind::gradient, &RouterSums::OfStage::tally);
    tensors.gradient["router.tally"] = add_by_layer("router.tally", &RouterSums::OfStage::tally);
  }
  if (!sums.has_biases) return sums;
  add_rows("router.loads", BufferKind::gradient, &RouterSums::OfStage::loads);
  add_rows("router.biases", BufferKind::parameter, &RouterSums::OfStage::bias);
  tensors.parameter["router.bias"] = add_by_layer("router.bias", &RouterSums::OfStage::bias);
  tensors.gradient["router.bias"] = add_by_layer("router.load", &RouterSums::OfStage::loads);
  StateMap& state = schedule.state;
  const auto array = static_cast<std::uint32_t>(state.arrays.size());
  state.arrays.push_back({"router.bias", 1, experts, 0, 0, {{0, 1, experts, experts}}});
  std::vector<std::uint32_t> buckets(sums.stages.size());
  for (std::size_t stage = 0; stage < sums.stages.size(); ++stage) {
    const RouterSums::OfStage& of = sums.stages[stage];
    if (of.layers == 0) continue;
    buckets[stage] = static_cast<std::uint32_t>(state.buckets.size());
    state.buckets.push_back({stage, Expr(0), of.layers * experts});
    state.buckets.back().window(StatePart::parameters) = {schedule.tensors[of.bias].places.front().storage, 0};
  }
  for (const std::size_t layer : with_experts)
    state.pieces.push_back({array, buckets[stage_of[layer]], std::int64_t(layer), row_of[layer] * experts});
  return sums;
}

void zero_router_sums(Schedule& schedule, const RouterSums& sums, std::size_t stage, LaneId compute, Block& block) {
  if (sums.stages.empty() || sums.stages[stage].layers == 0) return;
  const auto zero = [&](const std::string& name, TensorId tensor) {
    const View rows = whole(schedule, tensor);
    add_operation(schedule, block,
                  {name + suffix_of(sums, stage),
                   Fill{rows.rows * rows.cols, 0},
                   compute,
                   Phase::setup,
                   {write(rows)},
                   Module::router});
  };
  if (sums.has_biases) zero("router.loads.zero", sums.stages[stage].loads);
  if (sums.has_tally) zero("router.tallies.zero", sums.stages[stage].tally);
}

void append_bias_update(Schedule& schedule, const RouterSums& sums, std::size_t stage, LaneId compute) {
  if (!sums.has_biases || sums.stages[stage].layers == 0) return;
  const View loads = whole(schedule, sums.stages[stage].loads), biases = whole(schedule, sums.stages[stage].bias);
  const std::string suffix = suffix_of(sums, stage);
  std::vector<Call>& calls = schedule.programs[stage].order;
  const auto place = [&](Operation operation) {
    operation.module = Module::router;
    const BlockId block = add_single(schedule, std::move(operation));
    calls.push_back(call_block(schedule, block));
    return schedule.blocks[block].ops.front();
  };
  const Edge ready = latest_on(schedule, calls, compute);
  std::optional<OpId> sum;
  if (sums.tokens.exists()) {
    sum = place(collective_operation("router.loads.all_reduce" + suffix, sums.tokens, CollectiveKind::all_reduce,
                                     loads.rows * loads.cols, Phase::grad_sync, {accumulate(loads)}));
    calls.back().waits.push_back(ready);
  }
  place({"router.move_bias" + suffix,
         MoveBias{loads.rows, loads.cols, sums.rate},
         compute,
         Phase::optimizer,
         {read(loads), accumulate(biases)}});
  if (sum) calls.back().waits.push_back({EdgeKind::finish_start, {*sum, 0, 0, 0, 0}});
}

}  // namespace stretto
