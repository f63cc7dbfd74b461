#include "exec/text/pre_tokens.hpp"

#include <cstddef>
#include <string>

#include "base/character_class.hpp"
#include "base/utf8.hpp"

namespace stretto::exec {
namespace {

constexpr std::string_view kCutOfGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCutOfLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCutOfQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A place in a text. Each rule returns the end of what it matches at a place, or the place itself.
class Matcher {
 public:
  Matcher(PreTokens cut, std::string_view text) : cut_(cut), text_(text) {}

  // Returns the end of the piece at `begin`: that of the first alternative of the expression that matches.
  std::size_t end_of_piece(std::size_t begin) const {
    std::size_t end = contraction(begin);
    if (end == begin) end = letters(begin);
    if (end == begin) end = digits(begin);
    if (end == begin) end = others(begin);
    if (end == begin) end = spaces(begin);
    return end;
  }

 private:
  char32_t at(std::size_t place) const { return code_point_of(text_.substr(place, length_at(place))); }
  std::size_t length_at(std::size_t place) const { return utf8_length(text_.substr(place)); }
  static bool is_line_end(char32_t c) { return c == '\r' || c == '\n'; }
  static bool is_other(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

  // Returns the end of the characters from `place` on that `fits` accepts, at most `most` of them.
  template <class Fits>
  std::size_t run(std::size_t place, Fits fits, std::size_t most = std::string_view::npos) const {
    for (; most > 0 && place < text_.size() && fits(at(place)); --most) place += length_at(place);
    return place;
  }
  // Returns the place after a space.
  std::size_t after_space(std::size_t place) const {
    return place < text_.size() && text_[place] == ' ' ? place + 1 : place;
  }

  std::size_t contraction(std::size_t begin) const {
    if (text_[begin] != '\'') return begin;
    std::string next(text_.substr(begin + 1, 2));
    if (cut_ != PreTokens::gpt2)
      for (char& c : next)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"})
      if (next.starts_with(ending)) return begin + 1 + ending.size();
    return begin;
  }
  std::size_t letters(std::size_t begin) const {
    std::size_t first = begin;
    if (cut_ == PreTokens::gpt2)
      first = after_space(begin);
    else if (const char32_t c = at(begin); !is_line_end(c) && !is_letter(c) && !is_number(c))
      first += length_at(begin);
    const std::size_t end = run(first, is_letter);
    return end > first ? end : begin;
  }
  std::size_t digits(std::size_t begin) const {
    if (cut_ != PreTokens::gpt2) return run(begin, is_number, cut_ == PreTokens::llama3 ? 3 : 1);
    const std::size_t first = after_space(begin), end = run(first, is_number);
    return end > first ? end : begin;
  }
  std::size_t others(std::size_t begin) const {
    const std::size_t first = after_space(begin), end = run(first, is_other);
    if (end == first) return begin;
    return cut_ == PreTokens::gpt2 ? end : run(end, is_line_end);
  }
  // Only white space is left. With line ends in it, the piece ends after the last one; otherwise it leaves the last
  // space to a word that follows.
  std::size_t spaces(std::size_t begin) const {
    const std::size_t end = run(begin, is_space);
    std::size_t after_line_end = begin, last = begin;
    for (std::size_t place = begin; place < end; place += length_at(place)) {
      last = place;
      if (is_line_end(at(place))) after_line_end = place + 1;
    }
    if (cut_ != PreTokens::gpt2 && after_line_end > begin) return after_line_end;
    return end == text_.size() || last == begin ? end : last;
  }

  PreTokens cut_;
  std::string_view text_;
};

}  // namespace

std::optional<PreTokens> pre_tokens_of(std::string_view regular_expression) {
  if (regular_expression == kCutOfGpt2) return PreTokens::gpt2;
  if (regular_expression == kCutOfLlama3) return PreTokens::llama3;
  if (regular_expression == kCutOfQwen2) return PreTokens::qwen2;
  return std::nullopt;
}

std::vector<std::string_view> pre_tokens(PreTokens cut, std::string_view text) {
  const Matcher matcher(cut, text);
  std::vector<std::string_view> pieces;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = matcher.end_of_piece(begin);
    pieces.push_back(text.substr(begin, end - begin));
  }
  return pieces;
}

}  // namespace stretto::exec
