#include "base/printable.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/utf8.hpp"

namespace stretto {
namespace {

constexpr char kHex[] = "0123456789abcdef";

bool is_control(char32_t point) { return point < 0x20 || (point >= 0x7f && point < 0xa0); }

// Characters that show nothing, reorder or end lines, or mean what nobody else knows. Of Unicode 16:
//   general categories Cf (format), Zl and Zp (line and paragraph separators), Co (private use) and the noncharacters
//   of Cn (UnicodeData.txt);
//   what else has the property Default_Ignorable_Code_Point, for which nothing is shown (DerivedCoreProperties.txt):
//   fillers of Hangul, variation selectors, the combining grapheme joiner and places reserved for more of the kind.
// First and last code points, in order. The noncharacters U+xxFFFE and U+xxFFFF are in is_hidden().
constexpr std::pair<char32_t, char32_t> kHidden[] = {
    {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},     {0x61c, 0x61c},       {0x6dd, 0x6dd},
    {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x115f, 0x1160},     {0x17b4, 0x17b5},
    {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},     {0x3164, 0x3164},
    {0xe000, 0xf8ff},   {0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},     {0xffa0, 0xffa0},
    {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},   {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0xf0000, 0xfffff}, {0x100000, 0x10ffff},
};

bool is_hidden(char32_t point) {
  constexpr char32_t kFirst = 0xad, kLastTwoOfPlane = 0xfffe;
  if (point < kFirst) return false;
  if ((point & 0xffff) >= kLastTwoOfPlane) return true;
  const auto after = std::upper_bound(std::begin(kHidden), std::end(kHidden), point,
                                      [](char32_t p, const auto& range) { return p < range.first; });
  return after != std::begin(kHidden) && point <= std::prev(after)->second;
}

std::string shown(std::string_view text, bool keeps_lines) {
  std::string all;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char32_t point = length > 0 ? code_point_of(text.substr(0, length)) : 0;
    const char c = text.front();
    if (length > 0 && is_hidden(point)) {
      const bool is_short = point <= 0xffff;
      all += is_short ? "\\u" : "\\U";
      for (int shift = is_short ? 12 : 28; shift >= 0; shift -= 4) all += kHex[point >> shift & 15];
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
