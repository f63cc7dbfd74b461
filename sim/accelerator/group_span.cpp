#include "sim/accelerator/group_span.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace stretto::sim {
namespace {

using Groups = std::vector<std::vector<std::int64_t>>;

// Returns the members of each instance, by its first rank.
Groups instances_of(const Mesh& mesh, const Communicator& communicator) {
  Groups instances;
  const std::int64_t ranks = mesh.ranks();
  std::vector<bool> is_seen(static_cast<std::size_t>(ranks), false);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (is_seen[static_cast<std::size_t>(rank)]) continue;
    std::vector<std::int64_t> members = mesh.members(rank, communicator.axes);
    if (!communicator.subset.empty()) {
      std::vector<std::int64_t> some;
      for (const std::int64_t place : communicator.subset) some.push_back(members[static_cast<std::size_t>(place)]);
      members = std::find(some.begin(), some.end(), rank) == some.end() ? std::vector<std::int64_t>{} : some;
    }
    for (const std::int64_t member : members) is_seen[static_cast<std::size_t>(member)] = true;
    if (!members.empty()) instances.push_back(std::move(members));
  }
  return instances;
}

// Returns a number of ranks that a node should hold a multiple of, so that it cuts no group along the fastest axes of
// any decomposition that it could hold whole: tp, tp and cp, all replicas of a stage; groups of experts. Where a node
// cannot keep all of them, those along fewer axes come first: the widest are those of data parallelism.
std::int64_t kept_group(const Mesh& mesh, std::int64_t domain) {
  std::int64_t kept = 1;
  std::vector<std::int64_t> groups(mesh.decompositions().size(), 1);  // [decomposition] ranks along `axes` axes
  bool is_more = true;
  for (std::size_t axes = 1; is_more; ++axes) {
    is_more = false;
    for (std::size_t d = 0; d < groups.size(); ++d) {
      const Mesh::Decomposition& of = mesh.decompositions()[d];
      if (axes > of.size() || groups[d] > domain) continue;
      is_more = true;
      groups[d] *= of[of.size() - axes].size;
      if (groups[d] > domain) continue;
      if (const std::int64_t both = std::lcm(kept, groups[d]); both <= domain) kept = both;
    }
  }
  return kept;
}

// Returns the ranks of a node, for a job on nodes of `domain` GPUs: the most that cut no kept group, or equally many on
// each of as few nodes.
std::int64_t ranks_of_node(const Mesh& mesh, std::int64_t domain) {
  const std::int64_t group = kept_group(mesh, domain), most = domain / group * group;
  const std::int64_t ranks = mesh.ranks(), nodes = (ranks + most - 1) / most;
  return ranks % nodes == 0 && ranks / nodes % group == 0 ? ranks / nodes : most;
}

// Returns the largest share of a pod's ranks that send out of the pod when every member sends to the one `distance`
// places after it.
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

// Along an axis whose coordinates are s ranks apart, ranks are at equal places of a node and of a pod again after a
// round of P / gcd(P, s) coordinates, where P is a common multiple of the ranks of a node and of a pod. So a mesh with
// three rounds (the first, the last, and one that stands for all between) and the remainder has every kind of place
// that the whole mesh has, and each further round adds as many nodes to a group as the round before.
struct Shortened {
  std::size_t axis = 0;  // axis of the mesh
  std::int64_t round = 0, left_out = 0;
};
constexpr std::int64_t kKeptRounds = 3;

std::vector<Shortened> shorten(Mesh::Decomposition& axes, const Communicator& communicator, std::int64_t period) {
  std::vector<Shortened> shortened;
  std::int64_t stride = 1;
  for (std::size_t a = axes.size(); a-- > 0;) {
    MeshAxis& axis = axes[a];
    const std::int64_t round = period / std::gcd(period, stride), left_out = axis.size / round - kKeptRounds;
    // A subset names coordinates, so its axis is not shortened.
    const bool is_named = !communicator.subset.empty() && std::find(communicator.axes.begin(), communicator.axes.end(),
                                                                    axis.coord) != communicator.axes.end();
    if (left_out > 0 && !is_named) {
      shortened.push_back({a, round, left_out});
      // the removed coordinates are a multiple of the period, so the strides of slower axes keep their places in it
      axis.size -= left_out * round;
    }
    stride *= axis.size;
  }
  return shortened;
}

// Returns the nodes of the instance on the most nodes, and the fewest members that one of its nodes has.
GroupSpan nodes_of(const Groups& instances, std::int64_t domain) {
  GroupSpan span;
  for (const std::vector<std::int64_t>& members : instances) {
    std::map<std::int64_t, std::int64_t> on_nodes;
    for (const std::int64_t member : members) ++on_nodes[member / domain];
    span.nodes = std::max(span.nodes, static_cast<std::int64_t>(on_nodes.size()));
    for (const auto& [node, count] : on_nodes) span.fewest = span.fewest == 0 ? count : std::min(span.fewest, count);
  }
  return span;
}

// Returns the number of nodes with all rounds of the axes from `next` on: each round adds what the round after the kept
// ones adds.
std::int64_t all_nodes(Mesh::Decomposition axes, const Communicator& communicator, std::int64_t domain,
                       const std::vector<Shortened>& shortened, std::size_t next) {
  while (next < shortened.size() && std::find(communicator.axes.begin(), communicator.axes.end(),
                                              axes[shortened[next].axis].coord) == communicator.axes.end())
    ++next;
  if (next == shortened.size()) return nodes_of(instances_of(Mesh(axes), communicator), domain).nodes;
  const std::int64_t kept = all_nodes(axes, communicator, domain, shortened, next + 1);
  axes[shortened[next].axis].size += shortened[next].round;
  const std::int64_t more = all_nodes(axes, communicator, domain, shortened, next + 1);
  return kept + shortened[next].left_out * (more - kept);
}

}  // namespace

GroupSpan span_of(const Schedule& schedule, const Communicator& communicator, std::int64_t domain, std::int64_t pod) {
  domain = ranks_of_node(schedule.mesh, domain);
  Mesh::Decomposition axes = schedule.mesh.axes();
  std::vector<Shortened> shortened;
  if (schedule.mesh.decompositions().size() == 1)
    shortened = shorten(axes, communicator, pod < schedule.mesh.ranks() ? std::lcm(domain, pod) : domain);
  const Groups instances = instances_of(shortened.empty() ? schedule.mesh : Mesh(axes), communicator);
  GroupSpan span = nodes_of(instances, domain);
  span.members = communicator.size;
  if (!shortened.empty()) span.nodes = all_nodes(axes, communicator, domain, shortened, 0);
  if (span.nodes == 1) return span;
  span.leaving = share_leaving(instances, span.on_node(), pod);
  span.leaving_by_message = share_leaving(instances, 1, pod);
  return span;
}

std::vector<double> shares_between_nodes(const Schedule& schedule, const Communicator& communicator,
                                         std::int64_t domain) {
  domain = ranks_of_node(schedule.mesh, domain);
  const Groups instances = instances_of(schedule.mesh, communicator);
  std::vector<double> shares(static_cast<std::size_t>(communicator.size), 0);
  std::size_t ranks = 0;
  for (const std::vector<std::int64_t>& members : instances) {
    ranks += members.size();
    for (std::size_t distance = 1; distance < members.size(); ++distance)
      for (std::size_t i = 0; i < members.size(); ++i)
        shares[distance] += members[i] / domain != members[(i + distance) % members.size()] / domain ? 1 : 0;
  }
  for (double& share : shares) share /= double(ranks);
  return shares;
}

}  // namespace stretto::sim
