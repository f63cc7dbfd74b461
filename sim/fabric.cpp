#include "sim/fabric.hpp"

#include "sim/accelerator/accelerator.hpp"

namespace stretto::sim {

void carry_spine(Accelerator& accelerator, Fabric& fabric) {
  if (accelerator.oversubscription <= 1) return;
  fabric.pod = accelerator.pod;
  fabric.spine_GBps = accelerator.card_GBps(0) * static_cast<double>(accelerator.pod) / accelerator.oversubscription;
  accelerator.oversubscription = 1;
}

}  // namespace stretto::sim
