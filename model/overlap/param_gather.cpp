// overlap_param_gather (Megatron-LM): the all-gather of updated parameters moves from the end of the step into the next
// step's forward pass, bucket by bucket, one bucket ahead of its first use.
//
// Edges:   AdamW_b of the step before  →  AG_b  →  first use of bucket b
//          first use of bucket k starts  →  AG_{k+1} starts   (prefetch distance 1; start→start)
// Order:   buckets in the order of their first use in forward; those first used by the same operation go together.
// Exposed: s_k = max(t_k, g_k), g_{k+1} = s_k + a_{k+1};  Σ max(0, g_k − t_k): the first bucket in full.
#include <algorithm>
#include <tuple>
#include <utility>

#include "model/overlap/overlap.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

void rewrite_role(Lowered& lowered, std::size_t role) {
  Schedule& schedule = lowered.schedule;
  Program& program = schedule.programs[role];
  std::vector<BucketOps> buckets;
  for (const BucketOps& ops : lowered.bucket_ops)
    if (ops.role == role) buckets.push_back(ops);
  const LaneId compute = schedule.operations[buckets.front().adamw].lane;

  // The plain schedule holds the next step back until all parameters are gathered: no longer.
  std::erase_if(program.order.front().waits, [&](const Edge& wait) {
    return std::any_of(buckets.begin(), buckets.end(),
                       [&](const BucketOps& ops) { return ops.all_gather == wait.on.op; });
  });
  struct Gather {
    OrderPosition first_use;
    OpId gather, adamw;
    Call call;
  };
  std::vector<Gather> gathers;
  for (const BucketOps& ops : buckets) {
    const std::size_t call = call_of(schedule, program, ops.all_gather);
    gathers.push_back({{}, ops.all_gather, ops.adamw, std::move(program.order[call])});
    program.order.erase(program.order.begin() + static_cast<std::ptrdiff_t>(call));
  }
  for (std::size_t b = 0; b < gathers.size(); ++b)
    gathers[b].first_use = first_user(schedule, program, buckets[b].parameter, compute);
  std::stable_sort(gathers.begin(), gathers.end(), [](const Gather& a, const Gather& b) {
    return std::tie(a.first_use.call, a.first_use.within) < std::tie(b.first_use.call, b.first_use.within);
  });

  // From the last group to the first, so that positions of earlier ones stay valid while the order is edited.
  for (std::size_t end = gathers.size(); end > 0;) {
    std::size_t begin = end - 1;
    const OrderPosition use = gathers[begin].first_use;
    while (begin > 0 && gathers[begin - 1].first_use.call == use.call &&
           gathers[begin - 1].first_use.within == use.within)
      --begin;

    const std::size_t user = cut_before(program, use);
    for (std::size_t g = begin; g < end; ++g)
      program.order[user].waits.push_back({EdgeKind::finish_start, {gathers[g].gather, 0, 0, 0, 0}});
    if (begin == 0) {
      // Nothing is ahead of the first group: it goes first in the step.
      for (std::size_t g = 0; g < end; ++g) {
        gathers[g].call.waits = {{EdgeKind::finish_start, {gathers[g].adamw, 0, 0, 0, 1}}};
        program.order.insert(program.order.begin() + static_cast<std::ptrdiff_t>(g), gathers[g].call);
      }
      break;
    }
    // Issued right after the first user of the group before. That user is ahead of `user` in the order, so inserting
    // behind it needs its own cut, which the next round of this loop will find at the same position.
    const OrderPosition before = gathers[begin - 1].first_use;
    std::size_t at = before.call + 1;
    if (before.within + 1 < program.order[before.call].count)
      at = cut_before(program, {before.call, before.within + 1});
    const Edge released{EdgeKind::start_start, address_of(schedule, program, before)};
    for (std::size_t g = begin; g < end; ++g) {
      gathers[g].call.waits = {released, {EdgeKind::finish_start, {gathers[g].adamw, 0, 0, 0, 1}}};
      program.order.insert(program.order.begin() + static_cast<std::ptrdiff_t>(at + g - begin), gathers[g].call);
    }
    end = begin;
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

void rewrite_overlap_param_gather(Lowered& lowered) {
  for (std::size_t role = 0; role < lowered.schedule.programs.size(); ++role) rewrite_role(lowered, role);
}

}  // namespace stretto
