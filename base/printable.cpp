#include "base/printable.hpp"

#include <cstddef>

#include "base/utf8.hpp"

namespace stretto {
namespace {

constexpr char kHex[] = "0123456789abcdef";

bool is_control(char32_t point) { return point < 0x20 || (point >= 0x7f && point < 0xa0); }

bool turns_or_ends_lines(char32_t point) {
  return point == 0x61c || point == 0x200e || point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
         (point >= 0x2066 && point <= 0x2069);
}

std::string shown(std::string_view text, bool keeps_lines) {
  std::string all;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char32_t point = length > 0 ? code_point_of(text.substr(0, length)) : 0;
    const char c = text.front();
    if (length > 0 && turns_or_ends_lines(point)) {
      all += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) all += kHex[point >> shift & 15];
    } else if ((length > 0 && !is_control(point)) || (keeps_lines && (c == '\n' || c == '\t'))) {
      all += text.substr(0, length);
    } else if (c == '\n' || c == '\t' || c == '\r') {
      all += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else {
      for (const char one : text.substr(0, length > 0 ? length : 1)) {
        const auto byte = static_cast<unsigned char>(one);
        all += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return all;
}

}  // namespace

std::string printable(std::string_view text) { return shown(text, false); }
std::string printable_lines(std::string_view text) { return shown(text, true); }

}  // namespace stretto
