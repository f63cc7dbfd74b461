#pragma once
#include <string>
#include <vector>

namespace stretto::page {

// Returns the file of a scenario with overrides and a platform as TOML, without its comments: read again, it is the
// scenario that read_scenario_input() returns. Throws as that does.
std::string scenario_toml(const std::string& given, const std::vector<std::string>& set, const std::string& platform);

// Returns the name of the profile in that file, "" where it has none.
std::string profile_of(const std::string& given, const std::vector<std::string>& set);

}  // namespace stretto::page
