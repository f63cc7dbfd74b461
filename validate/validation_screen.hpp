#pragma once
#include <string>

#include "report/ink.hpp"
#include "validate/validate.hpp"

namespace stretto::validate {

// Returns the first screen of `stretto validate`: how far predictions are off in one line, their errors by GPU as
// histograms, and the groups that are best and worst known. At most 24 lines of at most 100 columns.
std::string first_screen(const Validation& validation, const Ink& ink);

}  // namespace stretto::validate
