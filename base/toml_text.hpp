#pragma once
#include <string>

#include "base/toml.hpp"

namespace stretto {

// Returns the text of a file for parse_toml(). Reads at most one byte more than kTomlMaxBytes of the file. Throws
// Error(input) with the path and the system's reason.
std::string toml_text(const std::string& path);

// Keeps text that toml_text() returns for `name` from now on, as if a file of that name held it. Thread-safe.
void keep_toml(const std::string& name, std::string text);

// Applies one override of parse_toml(), "section.key=value", to a root table; "section.key=" takes the key away. Throws
// Error(input) as that does.
void apply_override(TomlNode& root, const std::string& text);

// Returns what parse_toml() returns for the text from which `root` was parsed.
TomlTable with_overrides(TomlNode root, const std::string& name, const std::vector<std::string>& overrides);

}  // namespace stretto
