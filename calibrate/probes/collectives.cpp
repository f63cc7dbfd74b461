#include "base/statistics.hpp"
#include "base/values_of.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "model/lower/builder.hpp"
#include "model/ring.hpp"
#include "model/schedule/parcel.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

constexpr std::int64_t kElements[] = {1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22};

}  // namespace

std::vector<Access> collective_accesses(const Schedule& schedule, CollectiveKind kind, std::int64_t members,
                                        TensorId buffer, TensorId other) {
  const CollectiveRule rule = rule_of(kind);
  if (rule.one_buffer) return {accumulate(whole(schedule, buffer))};
  const auto view = [&](TensorId tensor, bool is_shard) {
    const View all = whole(schedule, tensor);
    const std::int64_t shard = all.cols / members;
    return is_shard ? View{tensor, 0, 0, Expr(Coord::dp) * Expr(shard), 1, shard, shard} : all;
  };
  return {read(view(buffer, rule.gives_shard)), write(view(rule.in_place() ? buffer : other, rule.gets_shard))};
}

Schedule collective_schedule(CollectiveKind kind, Dtype dtype, std::int64_t members,
                             const std::vector<std::int64_t>& sizes, const std::vector<int>& ctas) {
  Schedule schedule;
  schedule.name = "probe_collective";
  schedule.compute_dtype = Dtype::f32;
  schedule.mesh = Mesh({{Coord::dp, members}});
  schedule.placement.ranks_per_device = members;
  schedule.lanes = {{"compute", LaneKind::compute, 0}, {"dp", LaneKind::communication, -1}};
  if (ctas.empty()) schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, members}};
  for (const int blocks : ctas)
    schedule.communicators.push_back({"dp" + std::to_string(blocks), {Coord::dp}, CommEngine::sm, blocks, members});
  schedule.programs = {{"rank", {}}};
  auto& order = schedule.programs.front().order;
  OpId before = 0;
  for (const std::int64_t elements : sizes) {
    const std::string suffix = "." + std::to_string(elements);
    const TensorId buffer = add_tensor(schedule, "buffer" + suffix, dtype, BufferKind::gradient, 1, elements),
                   other = rule_of(kind).in_place()
                               ? buffer
                               : add_tensor(schedule, "other" + suffix, dtype, BufferKind::gradient, 1, elements);
    const BlockId fill =
        add_single(schedule, {"fill" + suffix, Fill{elements, 0}, 0, Phase::setup, {write(whole(schedule, buffer))}});
    const std::size_t filling = order.size();
    order.push_back(call_block(schedule, fill));
    OpId last = 0;
    for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c) {
      const BlockId collective = add_single(
          schedule, {"collective" + suffix + "." + schedule.communicators[c].name, Collective{kind, c, elements}, 1,
                     Phase::grad_sync, collective_accesses(schedule, kind, members, buffer, other)});
      order.push_back(call_block(schedule, collective));
      if (c == 0) order.back().waits = {{EdgeKind::finish_start, {schedule.blocks[fill].ops.front(), 0, 0, 0, 0}}};
      last = schedule.blocks[collective].ops.front();
    }
    order[filling].waits = {{EdgeKind::finish_start, {last, 0, 0, 0, 1}}};
    // On a GPU the fill would be concurrent with the collectives before it.
    if (!ctas.empty() && filling > 0) order[filling].waits.push_back({EdgeKind::finish_start, {before, 0, 0, 0, 0}});
    before = last;
  }
  return schedule;
}

std::vector<Sample> probe_collectives(const Machine& machine, int cores, double wake_us) {
  std::vector<Sample> samples;
  for (const std::int64_t members : {2, 4}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      for (const CollectiveKind kind : kinds_of_equal_slices()) {
        // In f32 training f64 is used in all-reduces of scalars, bf16 in reduce-scatters of gradients.
        const bool gathers = kind == CollectiveKind::all_gather, sums_all = kind == CollectiveKind::all_reduce;
        if (dtype == Dtype::f64 && !sums_all) continue;
        if (dtype == Dtype::bf16 && (gathers || sums_all)) continue;
        const std::vector<std::int64_t> sizes =
            dtype == Dtype::f64 ? std::vector<std::int64_t>{4, 1 << 10, 1 << 16}
                                : std::vector<std::int64_t>(std::begin(kElements), std::end(kElements));
        const Schedule schedule = collective_schedule(kind, dtype, members, sizes, {});
        const ProbeRun run = run_probe(schedule, machine, {}, 3, 31);
        // With more members than cores their shares of the movement take turns. Each phase begins and ends with waking
        // the sleeping members.
        const double turns = double((members + cores - 1) / cores);
        const double phases = rule_of(kind).phases;
        for (const auto& [op, times] : communication_times_us(schedule, run)) {
          const sim::WorkCost cost = sim::movement_cost(std::get<Collective>(schedule.operations[op].work), dtype,
                                                        members, rule_of(kind).in_place());
          const double one_share_us = (median(times) / phases - (1 + turns) * wake_us) / turns;
          samples.push_back(sample_of(cost, std::max(one_share_us, kLeastTransfer_us), times));
        }
      }
    }
  }
  return samples;
}

}  // namespace stretto::calibrate
