#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exec/text/pre_tokens.hpp"

namespace stretto::exec {

// Text as tokens of a model, and back. A value type.
class Tokenizer {
 public:
  // A byte is a token, as in training on text files.
  static Tokenizer of_bytes();
  // Reads a tokenizer.json of Hugging Face's tokenizers that has byte-pair encoding: of bytes, as those of GPT-2, Llama
  // 3 and Qwen, or of characters with tokens of bytes for the rest (byte_fallback), as those of Llama 2, Mistral and
  // Gemma. Throws Error(input) with file and key for what is malformed, and for all that such a file may ask for and
  // this reader does not do.
  static Tokenizer open(const std::string& path);
  // Reads its text; `name` stands for the file.
  static Tokenizer parse(std::string_view text, const std::string& name);

  // Returns the tokens of a text, after those that the file puts before every text. The names of special tokens in the
  // text are these tokens. Throws Error(input) for text that is not UTF-8 unless a byte is a token, and for characters
  // that the file wants normalised first.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // Returns the bytes that a token stands for; for a special token its name. A character may be divided among tokens.
  const std::string& bytes_of(std::int32_t token) const { return bytes_[static_cast<std::size_t>(token)]; }
  // Returns the number of ids: a token is below it.
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  class Maker;  // of a file
  struct Merge {
    std::size_t order = 0;  // the lowest of a piece is done first
    std::int32_t into = 0;
  };
  // How a tokenizer of characters writes the space, "▁" (SentencePiece), and where it puts one before a text.
  enum class Space : std::uint8_t { none, before_first, before_each, before_each_without };
  void encode_stretch(std::string_view text, bool is_first, std::vector<std::int32_t>& to) const;
  void encode_characters(std::string_view text, bool is_first, std::vector<std::int32_t>& to) const;
  void merge(std::vector<std::int32_t> parts, std::vector<std::int32_t>& to) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& to) const;

  bool is_of_bytes_ = false;
  std::string name_;                                      // of the file, for messages
  std::vector<std::string> bytes_;                        // [id]
  std::unordered_map<std::string, std::int32_t> tokens_;  // by their bytes
  std::map<std::pair<std::int32_t, std::int32_t>, Merge> merges_;
  std::vector<std::pair<std::string, std::int32_t>> special_;  // the longest names first
  std::vector<std::int32_t> before_;                           // tokens before every text
  PreTokens cut_ = PreTokens::gpt2;
  bool ignores_merges_ = false;  // a piece that is a token is that token, whatever the merges say
  bool adds_space_ = false;      // before a text that begins with none
  bool is_normalised_ = false;   // Unicode's normal form C
  bool has_fallback_ = false;    // of characters; tokens_ are by their names, in which a space is "▁"
  bool cuts_words_ = false;      // of characters: no merge goes over a space
  Space space_ = Space::none;
  std::vector<std::int32_t> byte_tokens_;  // [byte]: <0x00>, …; of characters
};

}  // namespace stretto::exec
