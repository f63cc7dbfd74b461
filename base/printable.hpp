#pragma once
#include <string>
#include <string_view>

namespace stretto {

// Text that others gave, for a terminal: what would move the cursor, change colours, end the line or reorder what is
// read is shown and not done. Control characters and DEL become \n, \t, \r or \xNN, as do bytes that are no UTF-8 and
// the control characters U+0080 to U+009F; ends of lines and paragraphs (U+2028, U+2029) and what turns the direction
// of writing (the Bidi_Control characters of Unicode's UAX #9, such as U+202E) become \uNNNN. All else stays, a
// backslash included.
std::string printable(std::string_view text);
// The same, where ends of lines and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace stretto
