#pragma once

namespace stretto {

// Return whether a code point is in the class that regular expressions write \p{L}, \p{N} or \s.
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_space(char32_t c);

}  // namespace stretto
