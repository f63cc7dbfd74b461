#pragma once
#include "model/overlap/gates.hpp"

namespace stretto {

// Adds the gates of low precision (docs/low-precision.md).
void add_low_precision_gates(const Scenario& scenario, Gates& gates);

}  // namespace stretto
