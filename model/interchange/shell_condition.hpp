#pragma once
#include <string>
#include <vector>

#include "model/interchange/shell_expand.hpp"

namespace stretto::shell {

// Whether the condition of [ … ] or [[ … ]] holds, of words that are expanded. Files are taken to be there: a script
// that is imported runs elsewhere. What is unknown counts as empty.
bool holds(std::vector<std::string> words, State& state);

}  // namespace stretto::shell
