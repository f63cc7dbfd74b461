#pragma once
#include <string>

#include "cli/files.hpp"

namespace stretto::cli {

// `show --platform` without a scenario: prints every number of a platform file, whether it is measured, published,
// fitted, assumed or derived, and its origin. `path` is a file or the name of one that ships.
void show_platform(const std::string& path, const Output& json);

}  // namespace stretto::cli
