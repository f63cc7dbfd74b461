#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace stretto::exec {

// The cut of a text into pieces that byte-pair encoding then cuts into tokens: the regular expression of a tokenizer's
// file. Three of these expressions are known.
enum class PreTokens {
  gpt2,    // GPT-2's, also that of ByteLevel with use_regex
  llama3,  // Llama 3's: up to three digits a piece
  qwen2,   // Qwen's: one digit a piece
};

// Returns the cut that has this regular expression; nullopt for any other.
std::optional<PreTokens> pre_tokens_of(std::string_view regular_expression);

// Returns the pieces, which together are the text. The text must be UTF-8.
std::vector<std::string_view> pre_tokens(PreTokens cut, std::string_view text);

}  // namespace stretto::exec
