#pragma once
#include <cstdint>

#include "model/schedule/work.hpp"

namespace stretto::sim {

// A group of ranks as NCCL sees it: members on nodes, as many on each. A node is an NVLink domain.
struct GroupSpan {
  std::int64_t members = 1;
  std::int64_t nodes = 1;
  std::int64_t on_node() const { return (members + nodes - 1) / nodes; }
};

// Microseconds of a collective across nodes: the least over rings and trees and over NCCL's protocols of
// latency + bytes / bandwidth, with the constants by which NCCL itself chooses (src/graph/tuning.cc of NCCL 2.20:
// ncclTopoTuneModel, ncclTopoGetAlgoTime). `cards_GBps` is what the network cards
// carry that the members on a node use together, `nvlink_GBps` the bus bandwidth within a node. `bytes` is the whole
// buffer. docs/platform.md compares it with logs.
double nccl_across_nodes_us(CollectiveKind kind, double bytes, const GroupSpan& span, double cards_GBps,
                            double nvlink_GBps);

}  // namespace stretto::sim
