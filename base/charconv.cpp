#include "base/charconv.hpp"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stretto {
namespace {

// The locale of programs' texts, with a point before the fraction. It lives as long as the program.
locale_t plain_locale() {
  static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

}  // namespace

std::from_chars_result from_chars_by_strtod(const char* begin, const char* end, double& value) {
  const std::string text(begin, end);
  const std::size_t sign = !text.empty() && text[0] == '-' ? 1 : 0;
  const auto at = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  if (at(sign) == '+' || at(sign) == '-' || std::isspace(static_cast<unsigned char>(at(sign))) != 0)
    return {begin, std::errc::invalid_argument};
  // strtod() would read on after the 0 of "0x1".
  if (at(sign) == '0' && (at(sign + 1) == 'x' || at(sign + 1) == 'X')) {
    value = sign != 0 ? -0.0 : 0.0;
    return {begin + sign + 1, std::errc()};
  }
  char* stop = nullptr;
  errno = 0;
  const double read = ::strtod_l(text.c_str(), &stop, plain_locale());
  if (stop == text.c_str()) return {begin, std::errc::invalid_argument};
  const char* const after = begin + (stop - text.c_str());
  // A number below the least normal one is exact enough to be a value, although strtod() reports it.
  if (errno == ERANGE && (read == 0 || std::isinf(read))) return {after, std::errc::result_out_of_range};
  value = read;
  return {after, std::errc()};
}

std::string shortest_text_by_printf(double number) {
  if (std::isnan(number)) return std::signbit(number) ? "-nan" : "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char scientific[32], fixed[400];
  int digits = 0;  // after the point
  do std::snprintf(scientific, sizeof scientific, "%.*e", digits, number);
  while (std::strtod(scientific, nullptr) != number && ++digits < 17);
  const int exponent = std::atoi(std::strchr(scientific, 'e') + 1);
  std::snprintf(fixed, sizeof fixed, "%.*f", std::max(0, digits - exponent), number);
  const std::string one = fixed, other = scientific;
  return one.size() <= other.size() ? one : other;
}

}  // namespace stretto
