#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto::sim {

// How a group of ranks lies on the cluster. A node is an NVLink domain; a pod is the nodes under one set of leaf
// switches.
struct GroupSpan {
  std::int64_t members = 1;
  std::int64_t nodes = 1;
  // Largest share of a pod's ranks that send out of the pod at one time: in a collective, and when all send a message
  // to their next; 0: a group stays within its pod.
  double leaving = 0, leaving_by_message = 0;
  // members on the node that has fewest, whose cards hold the other nodes up; 0: equal to on_node()
  std::int64_t fewest = 0;
  std::int64_t on_node() const { return (members + nodes - 1) / nodes; }
  std::int64_t cards() const { return fewest > 0 ? fewest : on_node(); }  // cards that members of a node use together
};

// Returns the span of a communicator's instances; of different ones, the one on the most nodes counts. `domain` and
// `pod` are the ranks of a node and of a pod. In a collective every member sends to the one `on_node()` places after
// it, on the same rail of the next node: NCCL's rings on a rail-optimised fabric. A group along the
// fastest axes that fits in a domain stays in one, whatever the number of ranks: nodes have the most ranks that cut no
// such group, or equally many on each of as few nodes, as Slurm places blocks with --segment: 128 GPUs are 64 of two
// domains of 72, and 84 GPUs of 3 stages of 28 are 56 of one domain and 28 of another. Time and memory depend on the
// ranks of nodes and pods, not on the ranks of the job.
GroupSpan span_of(const Schedule& schedule, const Communicator& communicator, std::int64_t domain, std::int64_t pod);

// Returns [distance], from 0 to size - 1, the share of ranks whose member `distance` places on is on another node.
std::vector<double> shares_between_nodes(const Schedule& schedule, const Communicator& communicator,
                                         std::int64_t domain);

}  // namespace stretto::sim
