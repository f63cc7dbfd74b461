#pragma once
#include <string>

#include "report/comparison.hpp"
#include "report/ink.hpp"

namespace stretto {

// Returns the first screen of `stretto compare`: how far predictions are off, each mode at each number of ranks, and
// the mode that brings most. On a busy machine a warning comes first, and nothing ranks modes. At most 24 lines of at
// most 100 columns, but for the names of modes.
std::string comparison_screen(const Comparison& comparison, const Ink& ink);

}  // namespace stretto
