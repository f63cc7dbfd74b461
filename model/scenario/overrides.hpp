#pragma once
#include <string>
#include <vector>

#include "base/toml.hpp"

namespace stretto {

// Returns "section.key=value" with the key in full. People may write "tp=2", or the key without its section where one
// section alone of [model], [parallel], [overlap] and [training] has it. All other text is returned as it is.
std::string full_setting(const std::string& text);
std::vector<std::string> full_settings(std::vector<std::string> texts);

// The names by which people write layouts ("tp 4, pp 2"), and their keys.
struct ShortName {
  const char *name, *key;
};
const std::vector<ShortName>& short_names();

// Applies overrides to a scenario's root table as parse_toml() does. Options of recomputation in the file, which no
// override sets, fall away where an override chooses a recompute_granularity that does not have them.
void apply_settings(TomlNode& root, const std::vector<std::string>& overrides);

// Throws Error(input) for a key that its section does not have and another section has, or nearly has.
void refuse_keys_of_other_sections(TomlTable& root);

}  // namespace stretto
