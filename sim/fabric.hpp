#pragma once
#include <cstdint>

namespace stretto::sim {

struct Accelerator;

// Links that ranks share, only for the simgrid network. With any of them ranks are not folded: kMostEndpoints of
// sim/network/rings.hpp is their limit.
struct Fabric {
  double backbone_GBps = 0;  // one link that all traffic crosses; 0 = none (non-blocking switch)
  std::int64_t pod = 0;      // ranks under one set of leaf switches; 0 = all
  double spine_GBps = 0;     // rate from a pod to the spine, in each direction
};

// Moves an oversubscribed spine into the fabric: its links then limit flows, and costs from `accelerator` no longer do.
// Without such a spine nothing changes.
void carry_spine(Accelerator& accelerator, Fabric& fabric);

}  // namespace stretto::sim
