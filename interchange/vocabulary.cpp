#include "interchange/vocabulary.hpp"

#include <algorithm>
#include <cctype>
#include <string>

namespace stretto {
namespace {

// A name that contains the word, letters and digits only, has this vocabulary. The first match counts, so a special
// word comes before the words that it contains. Sizes: len(tokenizer) of the tokenizers that the models publish on
// Hugging Face, and of Megatron-LM's own (megatron/core/tokenizers, d98e8a64).
struct Known {
  const char* word;
  std::int64_t size;
};
constexpr Known kKnown[] = {
    {"gpt2bpe", 50257},
    {"bertwordpiecelowercase", 30522},
    {"bertwordpiececase", 28996},
    {"llama2tokenizer", 32000},
    {"distillqwen", 151665},
    {"distillllama", 128256},
    {"llama4", 202048},
    {"llama3", 128256},
    {"llama2", 32000},
    {"llama1", 32000},
    {"llamatokenizer", 32000},
    {"llama7b", 32000},
    {"codellama", 32016},
    {"llama", 32000},
    {"mixtral8x22b", 32768},
    {"mixtral", 32000},
    {"mistrallarge", 32768},
    {"mistralnemo123b", 32768},
    {"mistralnemo", 131072},
    {"mistral7binstructv03", 32768},
    {"mistral7bv03", 32768},
    {"mistral", 32000},
    {"qwen3", 151669},
    {"qwen25", 151665},
    {"qwen2", 151646},
    {"qwen15", 151646},
    {"qwen", 151851},
    {"nemotron3", 131072},
    {"nemotronh", 131072},
    {"nemotronnano9b", 131072},
    {"nemotron", 256000},
    {"nemotron2256k", 256000},
    {"gemma3", 262144},
    {"gemma", 256000},
    {"baichuan213b", 125696},
    {"baichuan2", 125696},
    {"chatglm2", 64794},
    {"chatglm3", 64798},
    {"falcon", 65024},
    {"starcoder2", 49152},
    {"starcoder", 49152},
    {"yi34b", 64000},
    {"deepseekv3", 129280},
    {"deepseekr1", 129280},
    {"deepseekv2", 100002},
    {"gptoss", 200019},
    {"phi3", 32011},
    {"bigsciencetokenizer", 250680},
    {"bloom", 250680},
    {"t5small", 32100},
    {"opt", 50265},
    {"gptneox", 50277},
    {"gpt2", 50257},
    {"gpt3", 50257},
    {"gpt", 50257},
};

}  // namespace

std::optional<std::int64_t> vocabulary_of(std::string_view name) {
  std::string plain;
  for (const unsigned char c : name)
    if (std::isalnum(c) != 0) plain += static_cast<char>(std::tolower(c));
  for (const Known& known : kKnown) {
    // A short word must begin the name.
    const std::string word = known.word;
    if (word == "opt" || word == "gpt" ? plain.starts_with(word) : plain.find(word) != std::string::npos)
      return known.size;
  }
  return std::nullopt;
}

}  // namespace stretto
