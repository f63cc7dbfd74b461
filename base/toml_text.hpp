#pragma once
#include <string>

namespace stretto {

// Returns the text of a file for parse_toml(), of which at most one byte more than kTomlMaxBytes is read. Throws
// Error(input) with the path and the system's reason.
std::string toml_text(const std::string& path);

}  // namespace stretto
