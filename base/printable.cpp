#include "base/printable.hpp"

#include <cstddef>

namespace stretto {
namespace {

// Bytes of the character that begins here; 0 where they are no UTF-8 (RFC 3629) or a control character.
std::size_t length_of_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  // The second byte says whether the form is the shortest, no surrogate, and at most U+10FFFF.
  const unsigned least = first == 0xc2 ? 0xa0 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = length_of_character(text);
    if (length > 0) {
      shown += text.substr(0, length);
    } else if (const char c = text.front(); c == '\n' || c == '\t' || c == '\r') {
      shown += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else {
      const auto byte = static_cast<unsigned char>(c);
      shown += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return shown;
}

}  // namespace stretto
