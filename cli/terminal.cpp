#include "cli/terminal.hpp"

#include <string_view>
#include <utility>

#include "base/printable.hpp"

namespace stretto::cli {
namespace {

// 0 for a printable character. U+0080 to U+009F are control characters too.
std::size_t control_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first == 0xc2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0) return 2;
  return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ? 1 : 0;
}

}  // namespace

std::streambuf::int_type ShownText::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

std::streamsize ShownText::xsputn(const char* text, std::streamsize count) {
  const std::string_view all(text, static_cast<std::size_t>(count));
  std::size_t written = 0;  // of `all`
  const auto put = [&](std::string_view part) {
    return inner_->sputn(part.data(), static_cast<std::streamsize>(part.size())) == std::streamsize(part.size());
  };
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t length = control_length(all.substr(i));
    if (length > 0) {
      if (!put(all.substr(written, i - written)) || !put(printable(all.substr(i, length)))) return 0;
      written = i + length;
    }
    i += length > 0 ? length : 1;
  }
  return put(all.substr(written)) ? count : 0;
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

}  // namespace stretto::cli
