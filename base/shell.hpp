#pragma once
#include <string>

namespace stretto {

// Returns a word as a shell reads it, in quotes where it needs them.
std::string in_shell(const std::string& word);

}  // namespace stretto
