#pragma once
#include <cstdint>

namespace stretto::sim {

struct Accelerator;

// Links that ranks share, of the simgrid network alone. With any of them ranks are not folded: kMostEndpoints of
// sim/network/rings.hpp is their limit.
struct Fabric {
  double backbone_GBps = 0;  // one link that all traffic crosses; 0 = none (non-blocking switch)
  std::int64_t pod = 0;      // ranks under one set of leaf switches; 0 = all
  double spine_GBps = 0;     // of a pod to the spine, each direction
};

// Has the fabric carry what crosses an oversubscribed spine: its links limit flows, and costs from `accelerator` no
// longer do. Nothing changes without one.
void carry_spine(Accelerator& accelerator, Fabric& fabric);

}  // namespace stretto::sim
