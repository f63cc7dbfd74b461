#pragma once
#include <string>

namespace stretto::testing {

// Returns how often `what`, which is not empty, occurs in a text.
inline std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

}  // namespace stretto::testing
