#include "cli/terminal.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/printable.hpp"
#include "base/utf8.hpp"

namespace stretto::cli {
namespace {

// Returns the number of bytes at the end of `text` that may be the beginning of a character.
std::size_t unfinished(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
    const std::string_view end = text.substr(text.size() - length);
    const auto first = static_cast<unsigned char>(end.front());
    if (first >= 0x80 && first < 0xc0) continue;  // the middle of a character
    const std::size_t whole = first < 0xc2 || first > 0xf4 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return length < whole ? length : 0;
  }
  return 0;
}

}  // namespace

ShownText::~ShownText() {
  const std::string rest = printable(held_);
  inner_->sputn(rest.data(), static_cast<std::streamsize>(rest.size()));
  stream_.rdbuf(data_ ? data_ : inner_);
}

std::streambuf::int_type ShownText::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

std::streamsize ShownText::xsputn(const char* text, std::streamsize count) {
  const std::lock_guard lock(mutex_);
  std::string all = std::exchange(held_, "") + std::string(text, static_cast<std::size_t>(count));
  const std::size_t rest = unfinished(all);
  held_ = all.substr(all.size() - rest);
  all.resize(all.size() - rest);
  const std::string shown = printable_lines(all);
  const auto size = static_cast<std::streamsize>(shown.size());
  return inner_->sputn(shown.data(), size) == size ? count : 0;
}

void keep_standard_output_for_data() {
  auto* const shown = dynamic_cast<ShownText*>(std::cout.rdbuf());
  if (shown == nullptr || shown->data_ != nullptr) return;
  std::cout.flush();
  shown->data_ = std::exchange(shown->inner_, std::cerr.rdbuf());
}

void write_to_standard_output(const std::string& data) {
  auto* const shown = dynamic_cast<ShownText*>(std::cout.rdbuf());
  std::streambuf* const out = shown == nullptr ? std::cout.rdbuf() : shown->data_ ? shown->data_ : shown->inner_;
  const auto size = static_cast<std::streamsize>(data.size());
  if (out->sputn(data.data(), size) != size || out->pubsync() != 0) std::cout.setstate(std::ios::badbit);
}

void clear_line() {
  std::cerr.flush();
  std::fputs("\r\033[K", stderr);
}

}  // namespace stretto::cli
