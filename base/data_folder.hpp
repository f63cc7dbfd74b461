#pragma once
#include <string>
#include <vector>

namespace stretto {

// Files that come with Stretto and are found by name: platforms, profiles, scenarios. They lie in the folder
// $STRETTO_DATA, in share/stretto beside the folder of the installed program, or in scenarios/ of the source tree that
// the program was built in, whichever is there first.

// The path of KIND/NAME.toml ("platforms", "h100-sxm"). Throws Error(input): no such file, with the nearest name.
std::string data_file(const std::string& kind, const std::string& name);

// The path of a file of that folder itself ("published.csv"). Throws Error(input): no folder has it.
std::string data_path(const std::string& file);

// The names of a kind, in order; {} when no folder has any.
std::vector<std::string> data_names(const std::string& kind);

// Whether a user's text is such a name and not a path: letters, digits, '-', '_' and '.', and no ".toml" at its end. A
// file that is called so is named with a folder: "./host".
bool is_data_name(const std::string& text);

}  // namespace stretto
