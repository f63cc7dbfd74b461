#pragma once
#include <set>
#include <string>
#include <vector>

namespace stretto {

// Returns the keys of [section] to which a scenario's file, its profile or an override gives a value; all others have
// defaults. Arguments and errors are those of read_scenario().
std::set<std::string> given_keys(const std::string& path, const std::vector<std::string>& overrides,
                                 const std::string& section);

}  // namespace stretto
