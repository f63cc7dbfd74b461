#pragma once
#include <string>
#include <string_view>

namespace stretto {

// Makes foreign text safe for a terminal: characters that would move the cursor, change colours, end the line or
// reorder the text are shown and not performed. Control characters and DEL become \n, \t, \r or \xNN, as do bytes that
// are not UTF-8 and the control characters U+0080 to U+009F. Line and paragraph separators (U+2028, U+2029) and the
// Bidi_Control characters of Unicode's UAX #9 (such as U+202E) become \uNNNN. All other text stays, including
// backslashes.
std::string printable(std::string_view text);
// Does what printable() does, but keeps line breaks and tabs.
std::string printable_lines(std::string_view text);

}  // namespace stretto
