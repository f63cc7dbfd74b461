#pragma once
#include "model/overlap/gates.hpp"

namespace stretto {

// Adds the gates of the types of the optimizer's numbers (model/optimizer_precision.hpp).
void add_optimizer_gates(const Scenario& scenario, Gates& gates);

}  // namespace stretto
