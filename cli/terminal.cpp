#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
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

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool takes_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = variable(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return true;  // nothing is said
}

std::string in_ascii(std::string text) {
  static constexpr std::pair<const char*, const char*> kSpellings[] = {
      {"–", "-"},   {"−", "-"},  {"×", "x"},  {"±", "+-"}, {"·", "|"}, {"µ", "u"},
      {"…", "..."}, {"≥", ">="}, {"≤", "<="}, {"█", "#"},  {"░", "."}, {"▒", "~"}};
  for (const auto& [sign, spelling] : kSpellings)
    for (std::size_t at = text.find(sign); at != std::string::npos; at = text.find(sign, at))
      text.replace(at, std::string_view(sign).size(), spelling);
  return text;
}

// Returns the end of the style that begins at `at`, "ESC [ digits and semicolons m"; `at` where none does.
std::size_t end_of_style(std::string_view text, std::size_t at) {
  if (text.substr(at, 2) != "\x1b[") return at;
  const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : at;
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

Ink ink_of_output(const std::string& when) {
  Ink ink;
  const auto* const shown = dynamic_cast<ShownText*>(std::cout.rdbuf());
  if (shown != nullptr && shown->data_ != nullptr) return ink;  // text goes to standard error
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  if (winsize size{}; is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    ink.columns = std::min(ink.columns, static_cast<int>(size.ws_col));
  const bool may = is_terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  if (when == "never" || (when == "auto" && !may)) return ink;
  const std::string depth = variable("COLORTERM");
  ink.colours = depth == "truecolor" || depth == "24bit" ? Ink::Colours::all : Ink::Colours::sixteen;
  return ink;
}

void print_screen(const std::string& text, const Ink& ink) {
  const std::string spelled = takes_utf8() ? text : in_ascii(text);
  auto* const shown = dynamic_cast<ShownText*>(std::cout.rdbuf());
  if (!ink.on() || shown == nullptr) {
    std::cout << spelled;
    return;
  }
  std::cout.flush();
  std::string out;
  for (std::size_t at = 0; at < spelled.size();) {
    const std::size_t end = end_of_style(spelled, at);
    const std::size_t next = end > at ? end : std::min(spelled.find('\x1b', at + 1), spelled.size());
    out += end > at ? spelled.substr(at, end - at) : printable_lines(spelled.substr(at, next - at));
    at = next;
  }
  const auto size = static_cast<std::streamsize>(out.size());
  if (shown->inner_->sputn(out.data(), size) != size) std::cout.setstate(std::ios::badbit);
}

void clear_line() {
  std::cerr.flush();
  std::fputs("\r\033[K", stderr);
}

}  // namespace stretto::cli
