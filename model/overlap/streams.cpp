#include <algorithm>
#include <string>
#include <vector>

#include "model/overlap/overlap.hpp"

namespace stretto {
namespace {

// Returns the process group of a communicator: "pp.forward" belongs to group "pp"; a communicator over several axes
// belongs to none.
std::string group_of(const std::string& name) { return name == "embedding" ? "embd" : name.substr(0, name.find('.')); }

// Returns whether a collective only moves bytes, which a copy engine can do because nothing is added up. NCCL's
// Zero-CTA policy has only these (docs/gpu.md).
bool only_moves(const Collective& collective) {
  return collective.kind == CollectiveKind::all_gather || collective.kind == CollectiveKind::all_to_all;
}

// Moves the collectives of a communicator that only move bytes to the copy engine. Where the communicator has other
// collectives too, the moved ones get a communicator of the same ranks, "dp.copy", because a communicator has one
// engine. Returns whether any collective was moved.
bool move_to_copy_engine(Schedule& schedule, std::uint32_t index) {
  std::vector<Collective*> moving;
  bool has_others = false;
  for (Operation& operation : schedule.operations) {
    if (!is_communication(operation.work) || communicator_of(operation.work) != index) continue;
    auto* collective = std::get_if<Collective>(&operation.work);
    if (collective && only_moves(*collective))
      moving.push_back(collective);
    else
      has_others = true;
  }
  if (moving.empty()) return false;
  if (has_others) {
    Communicator copy = schedule.communicators[index];
    copy.name += ".copy";
    schedule.communicators.push_back(std::move(copy));
    index = static_cast<std::uint32_t>(schedule.communicators.size() - 1);
  }
  for (Collective* collective : moving) collective->communicator = index;
  schedule.communicators[index].engine = CommEngine::copy_engine;
  schedule.communicators[index].channels = 1;
  return true;
}

void assign_copy_engines(Schedule& schedule, const Cluster& cluster) {
  for (const std::string& group : cluster.zero_cta_groups) {
    bool is_there = false, any = false;
    const auto count = static_cast<std::uint32_t>(schedule.communicators.size());
    for (std::uint32_t index = 0; index < count; ++index) {
      const Communicator& communicator = schedule.communicators[index];
      if (group_of(communicator.name) != group || communicator.size < 2) continue;
      is_there = true;
      any |= move_to_copy_engine(schedule, index);
    }
    if (is_there && !any)
      schedule.notes.push_back("nccl_communicator_config." + group +
                               ".cta_policy is off: the group has no all-gather and no all-to-all, and a copy engine "
                               "does nothing else");
  }
}

}  // namespace

void assign_streams(Schedule& schedule, const Cluster& cluster) {
  assign_copy_engines(schedule, cluster);
  for (Communicator& communicator : schedule.communicators) {
    const auto ctas = cluster.max_ctas.find(group_of(communicator.name));
    // A ring exchange, and the collectives that cta_policy names, use the copy engine, which takes no SM.
    if (ctas == cluster.max_ctas.end() || communicator.engine == CommEngine::copy_engine) continue;
    communicator.engine = CommEngine::sm;
    communicator.channels = static_cast<int>(ctas->second);
  }
  const auto& groups = cluster.high_priority_stream_groups;
  for (Lane& lane : schedule.lanes)
    if (lane.kind == LaneKind::communication &&
        std::find(groups.begin(), groups.end(), group_of(lane.name)) != groups.end())
      lane.priority = kHighPriority;
  // Queues are assigned to streams in turn, in the order in which streams are made.
  if (const std::int64_t queues = cluster.cuda_device_max_connections; queues > 0)
    for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane)
      schedule.lanes[lane].queue = static_cast<int>(lane % static_cast<std::size_t>(queues));
}

}  // namespace stretto
