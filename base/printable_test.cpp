#include "base/printable.hpp"

#include <catch2/catch.hpp>

namespace stretto {

using namespace std::string_literals;

TEST_CASE("text of others is shown without what it would do to a terminal") {
  CHECK(printable("") == "");
  CHECK(printable("rank 3: a\\b \"100 %\" – für 東京 🎻") == "rank 3: a\\b \"100 %\" – für 東京 🎻");
  CHECK(printable("a\nb\tc\rd") == "a\\nb\\tc\\rd");
  CHECK(printable("\x1b[2J\x1b]0;title\a\x7f"s) == "\\x1b[2J\\x1b]0;title\\x07\\x7f");
  CHECK(printable("a\0b"s) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "31m"s) == "\\xc2\\x9b31m");  // U+009B begins a sequence, as ESC [ does
  CHECK(printable("a\u202eb\u2066c\u2028d\u061ce\u200ff") == "a\\u202eb\\u2066c\\u2028d\\u061ce\\u200ff");
  CHECK(printable("\u200b\u00ad\u2060\ufeff\u3164\ufe0f") == "\\u200b\\u00ad\\u2060\\ufeff\\u3164\\ufe0f");
  CHECK(printable("\ue000\uf8ff\ufdd0\ufffe\U0001ffff") == "\\ue000\\uf8ff\\ufdd0\\ufffe\\U0001ffff");
  CHECK(printable("\U0001d173\U000e0041\U000f0000") == "\\U0001d173\\U000e0041\\U000f0000");
  // Neighbours of the escaped characters.
  for (const char* text : {"\u00ac\u00ae", "\u2027\u202f", "\u200a\u2010", "\u205f\u2070", "\ufffd", "\U0001d17b"})
    CHECK(printable(text) == text);
  CHECK(printable_lines("a\n\tb\r\x1b[2J\u202e") == "a\n\tb\\r\\x1b[2J\\u202e");
}

TEST_CASE("bytes that are no UTF-8 are shown one by one") {
  CHECK(printable("\x80\xff"s) == "\\x80\\xff");
  CHECK(printable("\xc0\xaf"s) == "\\xc0\\xaf");                    // a longer form than needed: overlong
  CHECK(printable("\xe0\x9f\xbf"s) == "\\xe0\\x9f\\xbf");           // overlong too
  CHECK(printable("\xed\xa0\x80"s) == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80"s) == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  CHECK(printable("a\xc3"s) == "a\\xc3");                           // cut short
  CHECK(printable("\xe2\x82x"s) == "\\xe2\\x82x");
  CHECK(printable("\xf4\x8f\xbf\xbf"s) == "\\U0010ffff");  // the last one, a noncharacter
}

}  // namespace stretto
