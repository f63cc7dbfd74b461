#pragma once
#include <string>

#include "ask/simulate.hpp"
#include "report/ink.hpp"

namespace stretto::ask {

// Returns the answer as the first screen of `simulate`: the finding, four figures, one bar of where the time goes, at
// most three levers, notes, and a line that names what else to ask. At most `ink.columns` wide, 60 at the least.
std::string first_screen(const Asked& asked, const SimulateAnswer& answer, const Ink& ink);

}  // namespace stretto::ask
