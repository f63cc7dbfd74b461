#pragma once
#include <string>
#include <vector>

namespace stretto {

// Files that come with Stretto and are found by name: platforms, profiles, scenarios. They lie in the first of these
// folders that exists: $STRETTO_DATA, share/stretto next to the folder of the installed program, and scenarios/ of the
// source tree that the program was built in.

// The path of KIND/NAME.toml ("platforms", "h100-sxm"). Throws Error(input): no such file, with the nearest name.
std::string data_file(const std::string& kind, const std::string& name);

// Returns the path of a file directly in that folder ("published.csv"). Throws Error(input) when no folder has the
// file.
std::string data_path(const std::string& file);

// Returns the names of a kind, sorted; {} when no folder has any.
std::vector<std::string> data_names(const std::string& kind);

// Returns whether a user's text is a name and not a path: letters, digits, '-', '_' and '.', without ".toml" at its
// end. A user writes the folder too for a file with such a name: "./host".
bool is_data_name(const std::string& text);

}  // namespace stretto
