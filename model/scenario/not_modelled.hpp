#pragma once
#include <string>
#include <string_view>

#include "base/toml.hpp"

namespace stretto {

// Frameworks' names for features that Stretto does not model yet: keys of configurations, flags of command lines,
// precisions, types of models. Every reader of such names uses this one table.

// Returns why such a name is refused, "experts are not modelled yet"; "" for any other name. Case is ignored, dashes
// count as underscores, and leading dashes of a flag are ignored.
std::string not_modelled(std::string_view name);

// Throws Error(input) for a key of the table that has such a name.
void refuse_not_modelled(const TomlTable& table);

}  // namespace stretto
