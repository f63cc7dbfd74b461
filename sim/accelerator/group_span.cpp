#include "sim/accelerator/group_span.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace stretto::sim {
namespace {

constexpr std::int64_t kMostRanks = 1 << 16;

// Members of each instance, by its first rank.
std::vector<std::vector<std::int64_t>> instances_of(const Schedule& schedule, const Communicator& communicator) {
  std::vector<std::vector<std::int64_t>> instances;
  const std::int64_t ranks = std::min(schedule.mesh.ranks(), kMostRanks);
  std::vector<bool> is_seen(static_cast<std::size_t>(ranks), false);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (is_seen[static_cast<std::size_t>(rank)]) continue;
    std::vector<std::int64_t> members = members_of(schedule, communicator, rank);
    for (const std::int64_t member : members)
      if (member < ranks) is_seen[static_cast<std::size_t>(member)] = true;
    if (!members.empty()) instances.push_back(std::move(members));
  }
  return instances;
}

// Ranks of a node, of a job on nodes of `domain` GPUs: as many on each of the fewest nodes that hold it, where that
// divides them and cuts no group along the fastest axes that a node holds whole (7 GPUs of each of four nodes would cut
// every second group of 4); otherwise all GPUs of each node but the last.
std::int64_t ranks_of_node(const Mesh& mesh, std::int64_t domain) {
  const std::int64_t ranks = mesh.ranks(), domains = (ranks + domain - 1) / domain;
  if (ranks % domains != 0) return domain;
  std::int64_t group = 1;
  for (auto axis = mesh.axes().rbegin(); axis != mesh.axes().rend() && group * axis->size <= domain; ++axis)
    group *= axis->size;
  const std::int64_t each = ranks / domains;
  return each % group == 0 || domain % group != 0 ? each : domain;
}

// Largest share of a pod's ranks that send out of it when every member sends to the one `distance` places behind it.
double share_leaving(const std::vector<std::vector<std::int64_t>>& instances, std::int64_t distance, std::int64_t pod) {
  std::map<std::int64_t, std::int64_t> leaving;  // [pod]
  for (const std::vector<std::int64_t>& members : instances)
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::size_t next = (i + static_cast<std::size_t>(distance)) % members.size();
      if (members[i] / pod != members[next] / pod) ++leaving[members[i] / pod];
    }
  std::int64_t most = 0;
  for (const auto& [number, count] : leaving) most = std::max(most, count);
  return static_cast<double>(most) / static_cast<double>(pod);
}

}  // namespace

GroupSpan span_of(const Schedule& schedule, const Communicator& communicator, std::int64_t domain, std::int64_t pod) {
  domain = ranks_of_node(schedule.mesh, domain);
  GroupSpan span{communicator.size, 1};
  const std::vector<std::vector<std::int64_t>> instances = instances_of(schedule, communicator);
  for (const std::vector<std::int64_t>& members : instances) {
    std::map<std::int64_t, std::int64_t> on_nodes;
    for (const std::int64_t member : members) ++on_nodes[member / domain];
    span.nodes = std::max(span.nodes, static_cast<std::int64_t>(on_nodes.size()));
    for (const auto& [node, count] : on_nodes) span.fewest = span.fewest == 0 ? count : std::min(span.fewest, count);
  }
  if (span.nodes == 1) return span;
  span.leaving = share_leaving(instances, span.on_node(), pod);
  span.leaving_by_message = share_leaving(instances, 1, pod);
  return span;
}

}  // namespace stretto::sim
