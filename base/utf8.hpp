#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace stretto {

// Bytes of the character at the beginning of `text`; 0 where they are no UTF-8 (RFC 3629), or there are none.
std::size_t utf8_length(std::string_view text);
// The code point of a character of that many bytes.
char32_t code_point_of(std::string_view character);

// Takes off the mark (U+FEFF) that Excel and Windows' editors put before a text in UTF-8.
std::string_view without_mark(std::string_view text);
// The text of a file, without that mark. Throws Error(input) "name:line: …", with the remedy, where it is no UTF-8 or
// has a NUL byte; every reader of a text file that others have written passes it through here.
std::string_view require_text(std::string_view text, const std::string& name);

}  // namespace stretto
