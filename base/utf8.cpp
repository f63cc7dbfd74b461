#include "base/utf8.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stretto {
namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";

std::string hex_of(char byte) {
  constexpr char digits[] = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return {'0', 'x', digits[value >> 4], digits[value & 15]};
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  // The second byte decides whether the form is the shortest, is not a surrogate, and is at most U+10FFFF.
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

char32_t code_point_of(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  constexpr unsigned kBits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};  // [bytes]: value bits of the first byte
  char32_t point = first & kBits[character.size()];
  for (const char next : character.substr(1)) point = point << 6 | (static_cast<unsigned char>(next) & 0x3f);
  return point;
}

std::string_view without_mark(std::string_view text) {
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::string_view require_text(std::string_view text, const std::string& name) {
  const bool is_utf16 = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte > 0 && byte < 0x80) {  // nearly all text
      ++i;
      continue;
    }
    const std::size_t length = is_utf16 ? 0 : utf8_length(text.substr(i));
    if (length > 0 && text[i] != '\0') {
      i += length;
      continue;
    }
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n');
    throw input_error(name + ":" + std::to_string(line) + ": expected UTF-8 text, got " +
                      (is_utf16          ? "UTF-16"
                       : text[i] == '\0' ? "a NUL byte"
                                         : "the byte " + hex_of(text[i])) +
                      "; save the file as UTF-8 (Excel calls it \"CSV UTF-8\")");
  }
  return without_mark(text);
}

}  // namespace stretto
