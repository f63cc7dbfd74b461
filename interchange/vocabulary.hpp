#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace stretto {

// Returns the number of tokens of a tokenizer, by the tokenizer's name or by the name of a model or file that has it:
// "GPT2BPETokenizer", "meta-llama/Meta-Llama-3.1-8B", "run_llama2_7b.sh". Sizes are those of the tokenizers' own files
// (published). Nothing where the name is unknown.
std::optional<std::int64_t> vocabulary_of(std::string_view name);

}  // namespace stretto
