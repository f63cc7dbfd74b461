#pragma once
#include <cstdint>

#include "model/ops/dtype.hpp"
#include "model/schedule/work.hpp"

namespace stretto {

// The ring algorithm's cost in steps and bytes (Patarasuk & Yuan, J. Parallel Distrib. Comput. 69, 2009). The host
// paces its transfers and the simulator predicts them by this one definition. n members, each sends to the next.
//   all-gather, reduce-scatter: n − 1 steps, (n − 1)/n of the buffer over each edge.
//   all-reduce: a reduce-scatter, then an all-gather.
//   all-to-all: every member sends n − 1 slices, one after the other, each straight to its receiver; on a crossbar this
//   sends as much as an all-gather.
struct RingCost {
  std::int64_t steps = 0;       // each pays the link's latency once
  std::int64_t edge_bytes = 0;  // over each edge of the ring, one direction
};

inline RingCost ring_cost(CollectiveKind kind, Dtype dtype, std::int64_t elements, std::int64_t members) {
  if (members <= 1) return {};
  const std::int64_t bytes = elements * bytes_of(dtype);
  // The bytes are rounded up, because an all-reduce of a few scalars still sends them.
  const RingCost half{members - 1, ((members - 1) * bytes + members - 1) / members};
  switch (kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
    case CollectiveKind::dispatch:  // as all experts have equally many rows
    case CollectiveKind::combine:
      return half;
    case CollectiveKind::all_reduce:
      return {2 * half.steps, 2 * half.edge_bytes};
  }
  return {};
}

}  // namespace stretto
