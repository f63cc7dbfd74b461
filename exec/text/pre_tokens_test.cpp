#include "exec/text/pre_tokens.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace stretto::exec;

namespace {

std::string cut_text(PreTokens cut, const std::string& text) {
  std::string list;
  for (const std::string_view piece : pre_tokens(cut, text)) list.append(list.empty() ? "" : "|").append(piece);
  return list;
}

}  // namespace

// Every right side is what Python's regex module finds with the expression; so were 120,000 random texts.
TEST_CASE("Texts are cut as the regular expressions of GPT-2, Llama 3 and Qwen cut them") {
  const std::string text = "I'LL we're 12345  (é漢 ²½ٍ ) a\t\tb  \n \n  c\u3000 \n";
  CHECK(cut_text(PreTokens::gpt2, text) == "I|'|LL| we|'re| 12345| | (|é漢| ²½|ٍ| )| a|\t|\t|b|  \n \n | c|\u3000 \n");
  CHECK(cut_text(PreTokens::llama3, text) == "I|'LL| we|'re| |123|45| | (|é漢| |²½|ٍ| )| a|\t|\tb|  \n \n| | c|\u3000 \n");
  CHECK(cut_text(PreTokens::qwen2, "x 2025!\r\n\r\n-") == "x| |2|0|2|5|!\r\n\r\n|-");
  CHECK(cut_text(PreTokens::llama3, "don'T 'so''s") == "don|'T| '|so|''|s");
  CHECK(pre_tokens(PreTokens::gpt2, "").empty());
  CHECK(pre_tokens_of(R"(\s+)") == std::nullopt);
}
