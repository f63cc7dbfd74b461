#include <optional>
#include <vector>

#include "base/statistics.hpp"
#include "base/values_of.hpp"
#include "calibrate/probes/gpu.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/parcel.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

// Collectives, or messages from each rank to the next, of each size in turn, each twice: the first brings the ranks
// together and the second is measured. The ranks form groups of `members`, which are all busy at one time.
struct NcclProbe {
  Schedule schedule;
  std::vector<OpId> measured;

  // `kind`: nullopt for messages. `channels`: nullopt for NCCL's own choice.
  NcclProbe(std::optional<CollectiveKind> kind, std::int64_t ranks, std::int64_t members, std::optional<int> channels,
            const std::vector<std::int64_t>& sizes) {
    constexpr LaneId kSending = 1;  // a collective uses this lane too
    schedule.name = "probe_nccl";
    schedule.compute_dtype = Dtype::bf16;
    schedule.mesh = Mesh({{Coord::dp, members}, {Coord::pp, ranks / members}});
    schedule.lanes = {{"compute", LaneKind::compute, 0}, {"dp", LaneKind::communication, 0}};
    if (!kind) schedule.lanes.push_back({"dp.recv", LaneKind::communication, 0});
    schedule.communicators = {
        {"dp", {Coord::dp}, channels ? CommEngine::sm : CommEngine::nic, channels.value_or(1), members}};
    schedule.programs = {{"rank", {}}};
    auto& order = schedule.programs.front().order;
    std::optional<OpId> before;
    for (const std::int64_t size : sizes) {
      const std::int64_t elements = size / members * members;
      const std::string suffix = "." + std::to_string(size);
      const TensorId from = add_tensor(schedule, "from" + suffix, Dtype::bf16, BufferKind::input, 1, elements),
                     to = add_tensor(schedule, "to" + suffix, Dtype::bf16, BufferKind::input, 1, elements);
      Block zero{"zero" + suffix, {}};
      for (const TensorId buffer : {from, to})
        add_operation(schedule, zero,
                      {"fill" + suffix + (buffer == from ? ".from" : ".to"),
                       Fill{elements, 0},
                       0,
                       Phase::setup,
                       {write(whole(schedule, buffer))}});
      const OpId filled = zero.ops.back();
      const BlockId fill = add_block(schedule, std::move(zero));
      std::vector<BlockId> blocks;
      if (kind)
        blocks = {add_single(schedule, {"collective" + suffix, Collective{*kind, 0, elements}, kSending,
                                        Phase::grad_sync, collective_accesses(schedule, *kind, members, to, from)})};
      else
        blocks = {add_single(schedule, {"send" + suffix,
                                        PointToPoint{true, 0, 1, elements},
                                        kSending,
                                        Phase::grad_sync,
                                        {read(whole(schedule, from))}}),
                  add_single(schedule, {"recv" + suffix,
                                        PointToPoint{false, 0, -1, elements},
                                        kSending + 1,
                                        Phase::grad_sync,
                                        {write(whole(schedule, to))}})};
      order.push_back(call_block(schedule, fill));
      // The fill would otherwise be concurrent with the measured operations of this step and the previous one.
      if (before) order.back().waits.push_back({EdgeKind::finish_start, {*before, 0, 1, 0, 0}});
      for (const BlockId block : blocks)
        order.back().waits.push_back({EdgeKind::finish_start, {schedule.blocks[block].ops.front(), 0, 1, 0, 1}});
      for (const std::int64_t turn : {0, 1})
        for (const BlockId block : blocks) {
          order.push_back(call_block(schedule, block, 0, turn));
          if (turn == 0) order.back().waits = {{EdgeKind::finish_start, {filled, 0, 0, 0, 0}}};
        }
      measured.push_back(schedule.blocks[blocks.back()].ops.front());
      before = measured.back();
    }
  }
};

}  // namespace

std::vector<Sample> probe_nccl(const Machine& machine, const GpuSizes& sizes, std::int64_t ranks) {
  std::vector<Sample> samples;
  std::vector<std::optional<int>> channels = {std::nullopt};
  channels.insert(channels.end(), sizes.ctas.begin(), sizes.ctas.end());
  const auto collectives = kinds_of_equal_slices();
  std::vector<std::optional<CollectiveKind>> kinds(collectives.begin(), collectives.end());
  kinds.push_back(std::nullopt);
  for (std::int64_t members = 2; members <= ranks; ++members) {
    if (ranks % members != 0) continue;
    for (const auto& kind : kinds)
      for (const auto& of : channels) {
        const NcclProbe probe(kind, ranks, members, of, sizes.elements);
        const ProbeRun run = run_probe(probe.schedule, machine, {}, 2, sizes.repeats);
        TimesByOp times_us;
        for (const Timeline& timeline : run.timelines)
          for (const TimelineRow& row : timeline.rows) {
            const BoundOp& op = run.programs.front().ops[row.op];
            if (row.rank == 0 && op.micro_batch == 1) times_us[op.op].push_back(to_us(row.moved() - row.transfer));
          }
        for (const OpId op : probe.measured) {
          const std::vector<double>& times = times_us.at(op);
          const Work& work = probe.schedule.operations[op].work;
          const sim::WorkCost cost = kind ? sim::nccl_cost(std::get<Collective>(work), Dtype::bf16, members, of)
                                          : sim::nccl_cost(std::get<PointToPoint>(work), Dtype::bf16, of);
          samples.push_back(sample_of(cost, std::max(median(times), kLeastTransfer_us), times));
        }
      }
  }
  return samples;
}

}  // namespace stretto::calibrate
