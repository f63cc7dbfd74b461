#include "calibrate/probes/step_run.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/bf16.hpp"
#include "model/build_schedule.hpp"

namespace stretto::calibrate {
namespace {

constexpr std::int64_t kCacheBytes = 64 << 20;  // more than the last-level cache that a core of today can use

void fill(const Schedule& schedule, const Scenario&, const exec::MemoryOf& memory_of) {
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
    if (host::RankMemory* memory = memory_of.find(rank)) fill_state(schedule, *memory);
}

}  // namespace

Scenario scenario_of(const StepShape& shape, std::int64_t ranks, std::int64_t tp) {
  Scenario scenario;
  scenario.name = "probe";
  scenario.model = {shape.layers, shape.hidden, shape.heads, 4 * shape.hidden,
                    shape.seq,    shape.seq,    shape.vocab, shape.vocab};
  if (shape.query_groups > 0) {
    scenario.model = in_llama_style(scenario.model);
    scenario.model.num_query_groups = shape.query_groups;
    scenario.model.ffn_hidden_size =
        (8 * shape.hidden / 3 + 63) / 64 * 64;  // as in Llama, where three matrices cost as much as two of GPT-2
  }
  scenario.parallel.data_parallel_size = ranks / tp;
  scenario.parallel.tensor_model_parallel_size = tp;
  scenario.training.micro_batch_size = shape.micro_batch;
  scenario.training.global_batch_size = shape.micro_batch * ranks / tp;
  scenario.parallel.sequence_parallel = scenario.overlap.tp_comm_overlap = tp > 1;
  scenario.overlap.tp_comm_overlap_cfg["proj_fprop"] = {TpMethod::ring_exchange};
  return scenario;
}

void add_experts(const MixtureShape& shape, Transformer& model) {
  Experts& of = model.experts;
  of.num_moe_experts = shape.experts;
  of.moe_ffn_hidden_size = of.moe_shared_expert_intermediate_size = shape.ffn;
  of.moe_shared_expert_gate = true;
  of.moe_aux_loss_coeff = 0.01;
  if (!shape.biased) return;
  model.swiglu = false;
  of.moe_router_score_function = RouterScore::sigmoid;
  of.moe_router_enable_expert_bias = true;
}

void fill_state(const Schedule& schedule, host::RankMemory& memory) {
  constexpr std::int64_t kPeriod = 101, kPeriods = 4096;
  std::vector<float> weights(kPeriod * kPeriods);
  for (std::int64_t i = 0; i < kPeriod * kPeriods; ++i)
    weights[static_cast<std::size_t>(i)] = float((i * 37) % kPeriod - 50) * 1e-3f;
  std::vector<Bf16> narrow(weights.size());
  std::transform(weights.begin(), weights.end(), narrow.begin(), [](float value) { return to_bf16(value); });
  std::set<StorageId> weights_in;
  for (const StateBucket& bucket : schedule.state.buckets)
    for (const StatePart part : {StatePart::parameters, StatePart::master})
      if (bucket.window(part)) weights_in.insert(bucket.window(part)->storage);
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    if (!is_persistent(storage.kind) || !memory.has(id)) continue;
    const bool is_weights = weights_in.contains(id);
    if (!is_weights) {
      std::memset(memory.at(id), 0, static_cast<std::size_t>(storage.bytes()));
      continue;
    }
    const auto* from = storage.dtype == Dtype::bf16 ? reinterpret_cast<const std::byte*>(narrow.data())
                                                    : reinterpret_cast<const std::byte*>(weights.data());
    const std::int64_t period_bytes = kPeriod * kPeriods * bytes_of(storage.dtype);
    for (std::int64_t at = 0; at < storage.bytes(); at += period_bytes)
      std::memcpy(memory.at(id) + at, from, static_cast<std::size_t>(std::min(period_bytes, storage.bytes() - at)));
  }
  // Scales of delayed scaling are as at the start, and no weights.
  for (const StatePiece& piece : schedule.state.pieces) {
    const ModelArray& array = schedule.state.array_of(piece);
    const auto& window = schedule.state.buckets[piece.bucket].window(StatePart::parameters);
    if (array.of_model || !window || !memory.has(window->storage)) continue;
    const auto all = memory.view<float>(schedule, window->storage, 0, schedule.storages[window->storage].elements);
    std::fill(all.begin(), all.end(), static_cast<float>(array.mean));
  }
}

StepRun::StepRun(const Scenario& scenario, const Machine& machine)
    : step_(scenario, build_schedule(scenario), machine, {}, exec::tokens_of(scenario), fill) {
  // The first of two steps brings the caches into the state that a step leaves; a large step does that by itself.
  steps_ = std::max(machine.steps, step_.verified.plan.peak_bytes() > kCacheBytes ? 1 : 2);
}

StepRun::Times StepRun::run(Undisturbed& undisturbed) {
  Timeline timeline;
  undisturbed([&] { timeline = step_.executor->run(steps_); });
  Times times;
  for (const TimelineRow& row : timeline.rows)
    times[step_.executor->programs()[static_cast<std::size_t>(row.rank)].ops[row.op].op].push_back(
        to_us(row.end - row.start));
  return times;
}

void StepRun::add(const Times& times) {
  for (const auto& [op, us] : times) times_us_[op].insert(times_us_[op].end(), us.begin(), us.end());
}

}  // namespace stretto::calibrate
