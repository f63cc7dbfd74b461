#include "base/toml_scan.hpp"

#include <algorithm>

#include "base/toml.hpp"

namespace stretto {
namespace {

static_assert(kTomlMaxDepth == kTomlMaxBrackets + kTomlMaxDots);

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  TomlScan scan() {
    while (at_ < text_.size() && fault_.line == 0) step();
    to_parse_ += text_.substr(kept_);
    std::erase(to_parse_, '\r');  // an end of a line within a string is "\n"; no other one is left
    return {std::move(fault_), std::move(to_parse_)};
  }

 private:
  void fail(std::string reason, bool is_syntax = true) {
    if (fault_.line == 0) fault_ = {line_, std::move(reason), is_syntax};
  }

  // Returns the character at the place, as a message shows it.
  std::string saw() const {
    if (at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r') return "saw '\\n'";
    std::size_t end = at_ + 1;
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0u) == 0x80u) ++end;
    return "saw '" + std::string(text_.substr(at_, end - at_)) + "'";
  }

  // TOML has no control characters but the tab and the ends of lines.
  void check_control() {
    const auto byte = static_cast<unsigned char>(text_[at_]);
    const bool ends_line = byte == '\n' || (byte == '\r' && text_.substr(at_, 2) == "\r\n");
    if ((byte < 0x20 && byte != '\t' && !ends_line) || byte == 0x7F) {
      constexpr const char* kHex = "0123456789abcdef";
      fail(std::string("expected no control character, saw \\x") + kHex[byte >> 4] + kHex[byte & 15]);
    }
  }

  void step() {
    check_control();
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      begins_line_ = false;
      return skip_string();
    }
    if (c == '#') {
      to_parse_ += text_.substr(kept_, at_ - kept_);
      for (; at_ < text_.size() && text_[at_] != '\n' && fault_.line == 0; ++at_) check_control();
      kept_ = at_;
      return;
    }
    if (c == '[' && begins_line_ && brackets_ == 0) {
      begins_line_ = false;
      return skip_header();
    }
    if (c == '[' || c == '{') {
      if (++brackets_ > kTomlMaxBrackets) fail("more than " + std::to_string(kTomlMaxBrackets) + " nested brackets");
    } else if ((c == ']' || c == '}') && brackets_ > 0) {
      --brackets_;
    }
    count_dot(c);
    if (c == '\n') {
      ++line_;
      begins_line_ = true;
    } else if (c != ' ' && c != '\t') {
      begins_line_ = false;
    }
    ++at_;
  }

  void count_dot(char c) {
    if (c == '.' && ++dots_ > kTomlMaxDepth)
      fail("expected at most " + std::to_string(kTomlMaxDepth) + " tables and arrays inside each other, got more",
           false);
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots_ = 0;
  }

  // Skips a table's name with its brackets.
  void skip_header() {
    const std::size_t opening = text_.substr(at_, 2) == "[[" ? 2 : 1;
    at_ += opening;
    dots_ = 0;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    const bool has_end = at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r';
    if (!has_end && std::string_view("=#.,[{}").find(text_[at_]) != std::string_view::npos)
      return fail("table header: expected bare key starting character or string delimiter, " + saw());
    while (at_ < text_.size() && text_[at_] != ']' && text_[at_] != '\n' && text_[at_] != '#' && fault_.line == 0) {
      if (text_[at_] == '"' || text_[at_] == '\'') {
        skip_string();
        continue;
      }
      if (text_[at_] == '\r' && text_.substr(at_, 2) == "\r\n") break;
      check_control();
      count_dot(text_[at_]);
      if (text_[at_] == '[' || text_[at_] == '=') break;
      ++at_;
    }
    if (fault_.line != 0) return;
    if (text_.substr(at_, opening) != std::string_view("]]").substr(0, opening))
      return fail("table header: expected ']', " + saw());
    at_ += opening;
  }

  void skip_string() {
    const char quote = text_[at_];
    const std::string fence(3, quote);
    const bool is_long = text_.substr(at_, 3) == fence;
    at_ += is_long ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (fault_.line != 0) return;
      if (text_[at_] == '\n' || (!is_long && text_.substr(at_, 2) == "\r\n")) {
        if (!is_long) return fail(std::string("string: expected ") + quote + ", saw '\\n'");
        ++line_;
        continue;
      }
      check_control();
      if (text_[at_] == '\\' && quote == '"') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] != '\n' && text_[at_ + 1] != '\r') ++at_;
      } else if (!is_long && text_[at_] == quote) {
        ++at_;
        return;
      } else if (is_long && text_.substr(at_, 3) == fence) {
        at_ += 3;
        // Up to two quotes may stand directly before the closing three.
        for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
        return;
      }
    }
    fail("string: encountered end-of-file");
  }

  std::string_view text_;
  std::size_t at_ = 0, kept_ = 0;  // the place, and the end of the last comment
  std::string to_parse_;
  int line_ = 1, brackets_ = 0, dots_ = 0;
  bool begins_line_ = true;
  TomlFault fault_;
};

}  // namespace

TomlScan scan_toml(std::string_view text) { return Scanner(text).scan(); }

}  // namespace stretto
