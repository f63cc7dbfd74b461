#include "exec/text/tokenizer.hpp"

#include <fmt/format.h>

#include <functional>
#include <queue>
#include <tuple>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace stretto::exec {

Tokenizer Tokenizer::of_bytes() {
  Tokenizer tokenizer;
  tokenizer.is_of_bytes_ = true;
  for (int byte = 0; byte < 256; ++byte) tokenizer.bytes_.emplace_back(1, static_cast<char>(byte));
  return tokenizer;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens = before_;
  if (is_of_bytes_) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  constexpr char32_t kFirstToCompose = 0x300;  // all characters before it are in normal form C (UAX #15)
  for (std::size_t i = 0, length = 0; i < text.size(); i += length) {
    length = utf8_length(text.substr(i));
    if (length == 0) throw input_error(fmt::format("prompt: byte {}: expected UTF-8", i + 1));
    if (is_normalised_ && code_point_of(text.substr(i, length)) >= kFirstToCompose)
      throw input_error(
          fmt::format("{}: normalizer: expected a prompt of characters below U+0300, which NFC leaves alone, got {}",
                      name_, text.substr(i, length)));
  }
  // Special tokens divide the text.
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t next = text.size(), length = 0;
    std::int32_t token = 0;
    for (const auto& [name, id] : special_)
      if (const std::size_t found = text.find(name, begin); found < next)
        next = found, length = name.size(), token = id;
    encode_stretch(text.substr(begin, next - begin), begin == 0, tokens);
    if (length > 0) tokens.push_back(token);
    begin = next + length;
  }
  return tokens;
}

void Tokenizer::encode_stretch(std::string_view text, bool is_first, std::vector<std::int32_t>& to) const {
  if (has_fallback_) return encode_characters(text, is_first, to);
  std::string with_space;
  if (adds_space_ && !text.empty() && text.front() != ' ') text = with_space.append(1, ' ').append(text);
  for (const std::string_view piece : pre_tokens(cut_, text)) encode_piece(piece, to);
}

void Tokenizer::encode_characters(std::string_view text, bool is_first, std::vector<std::int32_t>& to) const {
  if (text.empty()) return;
  constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581
  std::string written;
  const bool begins_with_space = text.front() == ' ' || text.starts_with(kSpace);
  if (space_ == Space::before_each || (space_ == Space::before_each_without && !begins_with_space) ||
      (space_ == Space::before_first && is_first && !begins_with_space))
    written += kSpace;
  for (const char c : text)
    if (c == ' ')
      written += kSpace;
    else
      written += c;
  std::vector<std::int32_t> parts;
  for (std::size_t i = 0, length = 0; i < written.size(); i += length) {
    length = utf8_length(std::string_view(written).substr(i));
    const std::string character = written.substr(i, length);
    if (cuts_words_ && character == kSpace && !parts.empty()) {
      merge(std::move(parts), to);
      parts.clear();
    }
    if (const auto found = tokens_.find(character); found != tokens_.end())
      parts.push_back(found->second);
    else
      for (const char byte : character) parts.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  }
  merge(std::move(parts), to);
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<std::int32_t>& to) const {
  if (const auto whole = tokens_.find(std::string(piece)); ignores_merges_ && whole != tokens_.end()) {
    to.push_back(whole->second);
    return;
  }
  std::vector<std::int32_t> parts;
  for (const char byte : piece) parts.push_back(tokens_.at(std::string(1, byte)));
  merge(std::move(parts), to);
}

// The merge of lowest order is done first, of equal ones the leftmost. A text without a cut is one piece, so that the
// next merge must not be looked for in all of it: candidates wait in a queue, and one whose parts have changed is
// passed over.
void Tokenizer::merge(std::vector<std::int32_t> parts, std::vector<std::int32_t>& to) const {
  struct Candidate {
    std::size_t order, left, right;
    std::int32_t a, b, into;
    bool operator>(const Candidate& other) const { return std::tie(order, left) > std::tie(other.order, other.left); }
  };
  constexpr std::int32_t kGone = -1;
  const std::size_t count = parts.size();
  std::vector<std::size_t> next(count), before(count);
  for (std::size_t i = 0; i < count; ++i) next[i] = i + 1, before[i] = i - 1;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto add = [&](std::size_t left) {
    const std::size_t right = next[left];
    if (right >= count) return;
    if (const auto found = merges_.find({parts[left], parts[right]}); found != merges_.end())
      queue.push({found->second.order, left, right, parts[left], parts[right], found->second.into});
  };
  for (std::size_t i = 0; i < count; ++i) add(i);
  while (!queue.empty()) {
    const Candidate one = queue.top();
    queue.pop();
    if (parts[one.left] != one.a || next[one.left] != one.right || parts[one.right] != one.b) continue;
    parts[one.left] = one.into;
    parts[one.right] = kGone;
    next[one.left] = next[one.right];
    if (next[one.left] < count) before[next[one.left]] = one.left;
    add(one.left);
    if (one.left > 0 && before[one.left] < count) add(before[one.left]);
  }
  for (const std::int32_t part : parts)
    if (part != kGone) to.push_back(part);
}

}  // namespace stretto::exec
