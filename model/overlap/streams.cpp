#include <algorithm>
#include <string>

#include "model/overlap/overlap.hpp"

namespace stretto {
namespace {

// "pp.forward" is of group "pp"; what several axes share is of none.
std::string group_of(const std::string& name) { return name == "embedding" ? "embd" : name.substr(0, name.find('.')); }

}  // namespace

void assign_streams(Schedule& schedule, const Cluster& cluster) {
  for (Communicator& communicator : schedule.communicators) {
    const auto ctas = cluster.max_ctas.find(group_of(communicator.name));
    // A ring exchange goes over the copy engine, which takes no SM.
    if (ctas == cluster.max_ctas.end() || communicator.engine == CommEngine::copy_engine) continue;
    communicator.engine = CommEngine::sm;
    communicator.channels = static_cast<int>(ctas->second);
  }
  const auto& groups = cluster.high_priority_stream_groups;
  for (Lane& lane : schedule.lanes)
    if (lane.kind == LaneKind::communication &&
        std::find(groups.begin(), groups.end(), group_of(lane.name)) != groups.end())
      lane.priority = kHighPriority;
  // Streams are given queues in turn, as they are made.
  if (const std::int64_t queues = cluster.cuda_device_max_connections; queues > 0)
    for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane)
      schedule.lanes[lane].queue = static_cast<int>(lane % static_cast<std::size_t>(queues));
}

}  // namespace stretto
