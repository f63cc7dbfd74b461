#pragma once
#include <string>
#include <string_view>

namespace stretto {

// Makes foreign text safe for a terminal: characters that would move the cursor, change colours, end the line, reorder
// the text or show nothing are shown and not performed. Control characters and DEL become \n, \t, \r or \xNN, as do
// bytes that are not UTF-8 and the control characters U+0080 to U+009F. Format characters (U+200B, U+202E), line and
// paragraph separators, characters of private use, noncharacters, and others for which nothing is shown become \uNNNN
// or \UNNNNNNNN. All other text stays, including backslashes.
std::string printable(std::string_view text);
// Does what printable() does, but keeps line breaks and tabs.
std::string printable_lines(std::string_view text);

}  // namespace stretto
