#pragma once
#include <string>

#include "validate/validate.hpp"

namespace stretto::validate {

// Returns the page of `stretto validate --html`: predicted against measured as points, and the tables that the command
// prints. `file` is the file that was read, for the title.
std::string render_validation(const Validation& validation, const std::string& file);

}  // namespace stretto::validate
