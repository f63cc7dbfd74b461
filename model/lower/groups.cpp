#include "model/lower/groups.hpp"

#include <algorithm>
#include <utility>

#include "model/lower/sharded.hpp"

namespace stretto {
namespace {

void add_mesh(Schedule& schedule, const Scenario& scenario) {
  const Parallel& p = scenario.parallel;
  std::vector<MeshAxis> axes;
  for (const Coord axis : axes_in_order(p)) {
    const std::int64_t size = p.size_of(axis);
    if (size > 1 || axis == Coord::dp) axes.insert(axes.begin(), {axis, size});
  }
  schedule.mesh = Mesh(axes);
  if (scenario.model.experts.any() && p.experts_apart()) {
    Mesh::Decomposition of_experts;
    for (const auto& [axis, size] : axes_of_experts(p)) of_experts.insert(of_experts.begin(), {axis, size});
    schedule.mesh.add_decomposition(std::move(of_experts));
  }
  const std::int64_t ranks = p.ranks();
  schedule.placement.ranks_per_device =
      scenario.cluster.ranks_per_device > 0 ? std::min(scenario.cluster.ranks_per_device, ranks) : ranks;
}

Group add(Schedule& schedule, Communicator communicator, LaneId lane) {
  Group group{static_cast<std::uint32_t>(schedule.communicators.size()), lane, place_in(schedule, communicator),
              communicator.size};
  schedule.communicators.push_back(std::move(communicator));
  return group;
}

void add_context_groups(Schedule& schedule, const Scenario& scenario, ContextShape& cp) {
  const Parallel& p = scenario.parallel;
  cp.size = p.context_parallel_size;
  if (cp.size == 1) return;
  const std::vector<CpCommType> types = p.cp_comm_types();
  cp.kinds.clear();
  for (const CpCommType type : types) {
    ContextKind& kind = cp.kinds.emplace_back();
    if (types.size() > 1) kind.suffix = std::string(".") + name_of(type);
    kind.gathers = type == CpCommType::all_gather;
    const std::int64_t exchange = p.cp_exchange_size(type), ring = p.cp_ring_size(type);
    // Ranks along one axis when there are both exchanges and rings; otherwise the whole group.
    const auto along = [&](Coord axis) {
      return exchange > 1 && ring > 1 ? std::vector{axis} : std::vector{Coord::cp, Coord::cp_exchange};
    };
    if (exchange > 1) kind.exchange = add_group(schedule, "cp.exchange" + kind.suffix, along(Coord::cp_exchange), 0);
    if (ring > 1) kind.ring = add_group(schedule, "cp" + kind.suffix, along(Coord::cp), 0);
  }
  const ContextKind& any = cp.kinds.front();
  cp.place = !any.exchange.exists() ? any.ring.place
             : !any.ring.exists()   ? any.exchange.place
                                    : any.ring.place * Expr(any.exchange.size) + any.exchange.place;
  const auto has = [&](bool (*uses)(const ContextKind&)) {
    return std::any_of(cp.kinds.begin(), cp.kinds.end(), uses);
  };
  if (has([](const ContextKind& kind) { return kind.exchange.exists() || kind.gathers; })) {
    const LaneId lane = add_communication_lane(schedule, "cp");
    for (ContextKind& kind : cp.kinds) kind.exchange.lane = kind.ring.lane = lane;
  }
  if (has([](const ContextKind& kind) { return kind.has_ring(); })) {
    cp.send = add_communication_lane(schedule, "cp.send");
    cp.recv = add_communication_lane(schedule, "cp.recv");
  }
}

}  // namespace

LaneId add_communication_lane(Schedule& schedule, const std::string& name) {
  schedule.lanes.push_back({name, LaneKind::communication, 0});
  return static_cast<LaneId>(schedule.lanes.size() - 1);
}

Operation collective_operation(std::string name, const Group& group, CollectiveKind kind, std::int64_t elements,
                               Phase phase, std::vector<Access> accesses) {
  return {std::move(name), Collective{kind, group.communicator, elements}, group.lane, phase, std::move(accesses)};
}

Group add_group(Schedule& schedule, const std::string& name, std::vector<Coord> along, LaneId lane) {
  std::erase_if(along, [&](Coord axis) { return axis != Coord::dp && schedule.mesh.size(axis) == 1; });
  std::int64_t size = 1;
  for (const Coord axis : along) size *= schedule.mesh.size(axis);
  return add(schedule, {name, std::move(along), CommEngine::nic, 1, size}, lane);
}

Group add_group_of_all(Schedule& schedule, LaneId lane) {
  std::vector<Coord> axes;
  std::string name;
  for (const MeshAxis& axis : schedule.mesh.axes()) {
    if (axis.size == 1) continue;
    axes.push_back(axis.coord);
    name += (name.empty() ? "" : "-") + std::string(name_of(axis.coord));
  }
  const std::int64_t ranks = schedule.mesh.ranks();
  for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c)
    if (schedule.communicators[c].axes == axes && schedule.communicators[c].subset.empty())
      return {c, lane, place_in(schedule, schedule.communicators[c]), ranks};
  return add(schedule, {name, axes, CommEngine::nic, 1, ranks}, lane);
}

Group add_subset(Schedule& schedule, const std::string& name, Coord axis, std::vector<std::int64_t> at, LaneId lane) {
  const std::int64_t size = std::ssize(at);
  return add(schedule, {name, {axis}, CommEngine::nic, 1, size, std::move(at)}, lane);
}

Groups add_groups(Schedule& schedule, const Scenario& scenario) {
  const Parallel& p = scenario.parallel;
  add_mesh(schedule, scenario);
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  const auto add_with_lane = [&](const std::string& name, std::vector<Coord> along) {
    return add_group(schedule, name, std::move(along), add_communication_lane(schedule, name));
  };
  const auto have_several_ranks = [&](const std::vector<Coord>& along) {
    return std::any_of(along.begin(), along.end(), [&](Coord axis) { return schedule.mesh.size(axis) > 1; });
  };
  const std::vector<Coord> replicas = {Coord::dp, Coord::cp, Coord::cp_exchange};
  Groups groups;
  if (p.replicas() > 1) groups.dp = add_with_lane("dp", replicas);
  // Reductions across instances have a communicator and a stream of their own, as in Megatron-LM.
  if (p.num_distributed_optimizer_instances > 1) groups.instances = add_with_lane("dp.instances", {Coord::dp_instance});
  // With one communicator gathers and reductions would be serialised (Megatron-FSDP's all-gather group).
  if (shards_units(scenario)) groups.gather = add_with_lane("dp.gather", replicas);
  if (p.tensor_model_parallel_size > 1) {
    groups.tp = add_with_lane("tp", {Coord::tp});
    schedule.communicators[groups.tp.communicator].joins_tokens = true;
  }
  add_context_groups(schedule, scenario, groups.cp);
  if (scenario.model.experts.any() && p.experts_apart()) {
    // Units are gathered and reduced where one rank has all of them, too: from its shard and to it.
    if (p.expert_dp() > 1 || shards_units(scenario)) groups.edp = add_with_lane("edp", {Coord::edp});
    if (shards_units(scenario)) groups.edp_gather = add_with_lane("edp.gather", {Coord::edp});
    std::vector<Coord> gathering;
    if (p.gathers_tokens_for_experts()) gathering.push_back(Coord::ep);
    if (p.expert_tp() > 1 && (!gathering.empty() || expert_tp_axis(p) == Coord::etp))
      gathering.push_back(expert_tp_axis(p));
    if (!gathering.empty()) groups.expert_tokens = add_with_lane(name_of(gathering.front()), gathering);
    if (p.expert_model_parallel_size > 1 && !p.gathers_tokens_for_experts()) {
      groups.ep = add_with_lane("ep", {Coord::ep});
      if (p.moe_expert_capacity_factor == 0) groups.ep_counts = add_with_lane("ep.counts", {Coord::ep});
      schedule.communicators[groups.ep.communicator].transport =
          p.moe_token_dispatcher_type != TokenDispatcher::flex     ? TokenTransport::nccl
          : p.moe_flex_dispatcher_backend == FlexBackend::hybridep ? TokenTransport::hybridep
          : p.moe_flex_dispatcher_backend == FlexBackend::ncclep   ? TokenTransport::ncclep
                                                                   : TokenTransport::deepep;
    }
  }
  if (const Experts& experts = scenario.model.experts; experts.has_balance_loss()) {
    std::vector<Coord> sharing = {Coord::tp, Coord::cp, Coord::cp_exchange};
    if (experts.balances_replicas()) sharing.insert(sharing.end(), {Coord::dp, Coord::dp_instance});
    if (have_several_ranks(sharing)) groups.sharing_tokens = add_with_lane("router", sharing);
  }
  if (rules_of(scenario.training.low_precision, scenario.compute_capability).is_delayed()) {
    // Megatron-LM at d98e8a64, core/parallel_state.py:1877.
    std::vector<Coord> sharing = {Coord::tp, Coord::cp, Coord::cp_exchange};
    if (!scenario.training.low_precision.tp_only_amax_red)
      sharing.insert(sharing.end(), {Coord::dp, Coord::dp_instance});
    if (have_several_ranks(sharing)) groups.amax = add_with_lane("amax", sharing);
  }
  if (overlaps_shared_expert(scenario)) {
    groups.shared_expert = static_cast<LaneId>(schedule.lanes.size());
    schedule.lanes.push_back({"compute.shared", LaneKind::compute, 0});
  }
  return groups;
}

}  // namespace stretto
