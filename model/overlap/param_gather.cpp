// overlap_param_gather (Megatron-LM): the all-gather of updated parameters moves from the end of the step into the next
// step's forward pass, bucket by bucket, one bucket ahead of its first use.
//
// Edges:   AdamW_b of the step before  →  AG_b  →  first use of bucket b
//          first use of bucket k starts  →  AG_{k+1} starts   (prefetch distance 1; start→start)
// Order:   buckets in the order of their first use in forward; those first used by the same operation go together.
// Exposed: s_k = max(t_k, g_k), g_{k+1} = s_k + a_{k+1};  Σ max(0, g_k − t_k): the first bucket in full.
//
// align_param_gather, for stages of several chunks: all buckets of a chunk go together, those of the first two at the
// beginning of the step, and those of chunk c + 1 when stage s starts its forward unit number u_c − s, u_c the first of
// chunk c. All stages do so at about the same moment, so that no stage computes beside communication, and is slower,
// while others wait for it.
// Edges:   start of forward unit u_c − s  →  AG of chunk c + 1 starts
#include <algorithm>
#include <optional>
#include <utility>

#include "model/overlap/overlap.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

struct Gather {
  OrderPosition first_use;
  BucketOps ops;
  Call call;
};

// Takes the gathers of a role out of its order.
std::vector<Gather> take_gathers(const Schedule& schedule, const std::vector<BucketOps>& buckets, Program& program,
                                 LaneId compute) {
  // The plain schedule holds the next step back until all parameters are gathered: no longer.
  std::erase_if(program.order.front().waits, [&](const Edge& wait) {
    return std::any_of(buckets.begin(), buckets.end(),
                       [&](const BucketOps& ops) { return ops.all_gather == wait.on.op; });
  });
  std::vector<Gather> gathers;
  for (const BucketOps& ops : buckets) {
    const std::size_t call = call_of(schedule, program, ops.all_gather);
    gathers.push_back({{}, ops, std::move(program.order[call])});
    program.order.erase(program.order.begin() + static_cast<std::ptrdiff_t>(call));
  }
  for (Gather& gather : gathers) gather.first_use = first_user(schedule, program, gather.ops.parameter, compute);
  std::stable_sort(gathers.begin(), gathers.end(),
                   [](const Gather& a, const Gather& b) { return a.first_use < b.first_use; });
  return gathers;
}

// What releases each gather: an operation that has started. None: the beginning of the step.
using Releases = std::vector<std::optional<OpAddress>>;

// First use of the bucket before; of several with the same first use, that of the bucket before them all.
Releases one_ahead(const Schedule& schedule, const Program& program, const std::vector<Gather>& gathers) {
  Releases releases(gathers.size());
  for (std::size_t g = 1; g < gathers.size(); ++g) {
    const OrderPosition before = gathers[g - 1].first_use;
    releases[g] =
        before == gathers[g].first_use ? releases[g - 1] : std::optional(address_of(schedule, program, before));
  }
  return releases;
}

Releases aligned(const Lowered& lowered, const Program& program, const std::vector<Gather>& gathers,
                 std::size_t stage) {
  // Every chunk has a forward part. Forward units of this stage: where each begins, and the first of each chunk.
  std::vector<OpAddress> units;
  std::vector<std::size_t> first_unit;
  const Call* last = nullptr;
  for (std::size_t c = 0; c < program.order.size(); ++c) {
    const Call& call = program.order[c];
    const auto& forward = lowered.forward_blocks;
    if (std::find(forward.begin(), forward.end(), call.block) == forward.end()) continue;
    if (last && last->chunk == call.chunk && last->micro_batch == call.micro_batch) continue;
    const auto chunk = static_cast<std::size_t>(call.chunk);
    if (chunk == first_unit.size()) first_unit.push_back(units.size());
    units.push_back(address_of(lowered.schedule, program, {c, 0}));
    last = &call;
  }
  Releases releases;
  for (const Gather& gather : gathers) {
    const auto chunk = static_cast<std::size_t>(program.order[gather.first_use.call].chunk);
    releases.push_back(chunk < 2 ? std::nullopt : std::optional(units[first_unit[chunk - 1] - stage]));
  }
  return releases;
}

void rewrite_role(Lowered& lowered, std::size_t role, bool align) {
  Schedule& schedule = lowered.schedule;
  Program& program = schedule.programs[role];
  std::vector<BucketOps> buckets;
  for (const BucketOps& ops : lowered.bucket_ops)
    if (ops.role == role) buckets.push_back(ops);
  const LaneId compute = schedule.operations[buckets.front().adamw].lane;
  std::vector<Gather> gathers = take_gathers(schedule, buckets, program, compute);
  const Releases releases = align ? aligned(lowered, program, gathers, role) : one_ahead(schedule, program, gathers);

  // From the last to the first, so that positions of earlier ones stay valid while the order is edited.
  std::size_t user = 0;
  for (std::size_t g = gathers.size(); g-- > 0;) {
    if (g + 1 == gathers.size() || !(gathers[g].first_use == gathers[g + 1].first_use))
      user = cut_before(program, gathers[g].first_use);
    program.order[user].waits.push_back({EdgeKind::finish_start, {gathers[g].ops.all_gather, 0, 0, 0, 0}});
  }
  for (std::size_t g = gathers.size(); g-- > 0;) {
    Call& call = gathers[g].call;
    call.waits.clear();
    std::size_t at = 0;
    if (releases[g]) {
      call.waits.push_back({EdgeKind::start_start, *releases[g]});
      const OrderPosition release = position_of(schedule, program, *releases[g]);
      at = release.call + 1;
      if (release.within + 1 < program.order[release.call].count)
        at = cut_before(program, {release.call, release.within + 1});
    }
    call.waits.push_back({EdgeKind::finish_start, {gathers[g].ops.adamw, 0, 0, 0, 1}});
    program.order.insert(program.order.begin() + static_cast<std::ptrdiff_t>(at), std::move(call));
  }
  // Pieces of GEMMs on further compute lanes may be ahead of the first user.
  for (LaneId lane = 0; lane < schedule.lanes.size(); ++lane) {
    if (lane == compute || schedule.lanes[lane].kind != LaneKind::compute) continue;
    for (const BucketOps& ops : buckets)
      if (const auto use = find_first_user(schedule, program, ops.parameter, lane))
        program.order[cut_before(program, *use)].waits.push_back(
            {EdgeKind::finish_start, {ops.all_gather, 0, 0, 0, 0}});
  }
}

}  // namespace

void rewrite_overlap_param_gather(Lowered& lowered, bool align) {
  for (std::size_t role = 0; role < lowered.schedule.programs.size(); ++role) rewrite_role(lowered, role, align);
}

}  // namespace stretto
