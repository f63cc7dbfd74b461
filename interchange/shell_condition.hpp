#pragma once
#include <string>
#include <vector>

#include "interchange/shell_expand.hpp"

namespace stretto::shell {

// Returns whether the condition of [ … ] or [[ … ]] holds; the words must be expanded. All files count as existing,
// because an imported script runs elsewhere. An unknown value counts as empty.
bool holds(std::vector<std::string> words, State& state);

}  // namespace stretto::shell
