#pragma once
#include <set>
#include <string>
#include <vector>

namespace stretto {

// The keys of [section] that a scenario's file, its profile or an override gives a value; all others have defaults.
// Arguments and errors as of read_scenario().
std::set<std::string> given_keys(const std::string& path, const std::vector<std::string>& overrides,
                                 const std::string& section);

}  // namespace stretto
