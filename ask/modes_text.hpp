#pragma once
#include <string>

#include "ask/simulate.hpp"

namespace stretto::ask {

// Returns the answer on overlap modes in short: each mode that acts, alone against a step with none, the fastest first,
// with the interval of its change; what decides where that is not known; each switch that is on, off from here; what
// would make a losing mode win; lower precisions. `columns`: the width of lines.
std::string modes_text(const Modes& modes, double step_ms, std::size_t columns);

}  // namespace stretto::ask
