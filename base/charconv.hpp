#pragma once
#include <charconv>
#include <string>
#include <version>

namespace stretto {

// Functions of <charconv> for doubles, for libraries of C++ that have only its functions of whole numbers (libc++ before
// 14 and 20). Other files include this header and call from_chars() and shortest_text().

// Reads a number as std::from_chars() does: no leading blank or '+', no hexadecimal digits, the nearest double, and an
// error without a value where no double is near. The text need not end with NUL.
std::from_chars_result from_chars_by_strtod(const char* begin, const char* end, double& value);
// Returns the shortest text that is read as this double, as std::to_chars() writes it.
std::string shortest_text_by_printf(double number);

using std::from_chars;
#ifdef __cpp_lib_to_chars
inline std::string shortest_text(double number) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
}
#else
inline std::from_chars_result from_chars(const char* begin, const char* end, double& value) {
  return from_chars_by_strtod(begin, end, value);
}
inline std::string shortest_text(double number) { return shortest_text_by_printf(number); }
#endif

}  // namespace stretto
