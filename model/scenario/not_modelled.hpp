#pragma once
#include <string>
#include <string_view>

#include "base/toml.hpp"

namespace stretto {

// Names that frameworks give to what Stretto does not model yet: keys of their configurations, flags of their command
// lines, precisions, types of models. One table for everything that reads such names.

// Why such a name is refused, "experts are not modelled yet"; "" for any other. Case does not count, dashes count as
// underscores, and those before a flag do not count.
std::string not_modelled(std::string_view name);

// Throws Error(input) for a key of the table that is such a name.
void refuse_not_modelled(const TomlTable& table);

}  // namespace stretto
