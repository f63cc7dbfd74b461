#pragma once
#include <string>
#include <string_view>

namespace stretto {

// Text that others gave, for a terminal: what would move the cursor, change colours or end the line is shown and not
// done. Control characters and DEL become \n, \t, \r or \xNN, as do bytes that are no UTF-8 and the control characters
// U+0080 to U+009F. All else stays, a backslash included.
std::string printable(std::string_view text);

}  // namespace stretto
