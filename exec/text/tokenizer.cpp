#include "exec/text/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

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
    encode_stretch(text.substr(begin, next - begin), tokens);
    if (length > 0) tokens.push_back(token);
    begin = next + length;
  }
  return tokens;
}

void Tokenizer::encode_stretch(std::string_view text, std::vector<std::int32_t>& to) const {
  std::string with_space;
  if (adds_space_ && !text.empty() && text.front() != ' ') text = with_space.append(1, ' ').append(text);
  for (const std::string_view piece : pre_tokens(cut_, text)) encode_piece(piece, to);
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<std::int32_t>& to) const {
  if (const auto whole = tokens_.find(std::string(piece)); ignores_merges_ && whole != tokens_.end()) {
    to.push_back(whole->second);
    return;
  }
  std::vector<std::int32_t> parts;
  for (const char byte : piece) parts.push_back(tokens_.at(std::string(1, byte)));
  while (true) {
    Merge first{std::numeric_limits<std::size_t>::max(), 0};
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto found = merges_.find({parts[i], parts[i + 1]});
          found != merges_.end() && found->second.order < first.order)
        first = found->second, place = i;
    if (first.order == std::numeric_limits<std::size_t>::max()) break;
    parts[place] = first.into;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  to.insert(to.end(), parts.begin(), parts.end());
}

}  // namespace stretto::exec
