#pragma once
#include "model/schedule/work.hpp"
#include "sim/accelerator/group_span.hpp"

namespace stretto::sim {

// Time of a group alone on its links. `latency_us` is the part of `us` in which no bytes flow.
struct GroupTime {
  double us = 0;
  double latency_us = 0;
};

// Returns the time of a collective across nodes: the least over rings and trees and over NCCL's protocols of latency +
// bytes / bandwidth, with the constants by which NCCL itself chooses (src/graph/tuning.cc of NCCL 2.20:
// ncclTopoTuneModel, ncclTopoGetAlgoTime). `cards_GBps` is the rate of the network cards that the members on a node use
// together, `nvlink_GBps` the bus bandwidth within a node, `latency` a factor on NCCL's latencies. `bytes` is the size
// of the whole buffer. docs/platform.md compares the result with logs.
GroupTime nccl_across_nodes(CollectiveKind kind, double bytes, const GroupSpan& span, double cards_GBps,
                            double nvlink_GBps, double latency = 1);

}  // namespace stretto::sim
