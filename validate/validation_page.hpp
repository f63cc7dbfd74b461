#pragma once
#include <string>

#include "validate/validate.hpp"

namespace stretto::validate {

// The page of `stretto validate --html`: predicted against measured as points, and the tables that the command prints.
// `file` is what was read, for the title.
std::string render_validation(const Validation& validation, const std::string& file);

}  // namespace stretto::validate
