#pragma once
#include <string>
#include <string_view>

namespace stretto {

// Looks through text for what its parser must not see, or would explain badly: toml11 recurses into brackets and dotted
// keys, and says of a table's name or a string without an end only that a key is invalid. Comments are left out because
// toml11 makes an object of every character that it reads. `text` is UTF-8.

// Tables and arrays inside each other that a file may have.
constexpr int kTomlMaxDepth = 24;  // kTomlMaxBrackets + kTomlMaxDots

struct TomlFault {
  int line = 0;  // 0: none was found
  std::string reason;
  bool is_syntax = true;  // the text is no TOML; otherwise it is more than is read
};

struct TomlScan {
  TomlFault fault;       // the first one
  std::string to_parse;  // without a fault: the text without comments, with equal lines
};
TomlScan scan_toml(std::string_view text);

}  // namespace stretto
