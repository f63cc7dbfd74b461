#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace stretto {

// Returns the bytes of the first character of `text`; 0 where they are not UTF-8 (RFC 3629) or `text` is empty.
std::size_t utf8_length(std::string_view text);
// Returns the code point of one character, which is all of `character`.
char32_t code_point_of(std::string_view character);

// Returns the text without the byte order mark (U+FEFF) that Excel and Windows' editors put before UTF-8.
std::string_view without_mark(std::string_view text);
// Returns a file's text without the byte order mark. Throws Error(input) "name:line: …", with the remedy, for text that
// is not UTF-8 or has a NUL byte. Every reader of a text file that other people wrote passes the text through this
// function.
std::string_view require_text(std::string_view text, const std::string& name);

}  // namespace stretto
