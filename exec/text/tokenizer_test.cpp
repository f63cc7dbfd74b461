#include "exec/text/tokenizer.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/message_of.hpp"

using namespace stretto::exec;
using Catch::Matchers::Contains;
using nlohmann::json;
using stretto::testing::message_of;
using Tokens = std::vector<std::int32_t>;

namespace {

std::string utf8(int point) {
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
}

// Returns a tokenizer.json in the style of Llama 3: a token for each byte, whose number is 1000 + the byte, and words.
json tokenizer_file() {
  json vocabulary;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    vocabulary[utf8(is_itself ? byte : next++)] = 1000 + byte;
  }
  const std::string space = utf8(0x120);
  int id = 0;
  for (const std::string& word : {std::string("he"), std::string("ll"), std::string("hell"), std::string("hello"),
                                  space + "t", space + "th", space + "the"})
    vocabulary[word] = id++;
  vocabulary[utf8(0xc3) + utf8(0xa9)] = id++;  // é
  json file = json::parse(R"({
    "version": "1.0", "normalizer": null,
    "added_tokens": [{"id": 2000, "content": "<|begin|>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true},
                     {"id": 2001, "content": "<|begin|>s", "special": true}],
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false}})");
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  file["model"]["vocab"] = vocabulary;
  file["model"]["merges"] = {space + " t", space + "t h", space + "th e", "l l",
                             "h e",        "he ll",       "hell o",       utf8(0xc3) + " " + utf8(0xa9)};
  return file;
}

Tokens encoded(const json& file, const std::string& text) {
  return Tokenizer::parse(file.dump(), "tokenizer.json").encode(text);
}

}  // namespace

TEST_CASE("A tokenizer.json makes tokens of text, and text of tokens") {
  json file = tokenizer_file();
  const Tokens wanted = {2000, 3, 6, 2000, 2001, 1000 + '!', 7};
  CHECK(encoded(file, "hello the<|begin|><|begin|>s!é") == wanted);
  // "l l" comes before "h e", whatever its place in the word.
  CHECK(encoded(file, "hellll") == Tokens{2000, 2, 1});
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "t");
  std::string text;
  for (const std::int32_t token : tokenizer.encode("\t hello\n漢 the ½")) text += tokenizer.bytes_of(token);
  CHECK(text == "<|begin|>\t hello\n漢 the ½");
  CHECK(tokenizer.size() == 2002);
  // Merges as pairs; a piece that is a token, without merges; GPT-2's cut with a space before the text.
  file["model"]["merges"] = json::array({json::array({"l", "l"})});
  CHECK(encoded(file, "hello") == Tokens{2000, 1000 + 'h', 1000 + 'e', 1, 1000 + 'o'});
  file["model"]["ignore_merges"] = true;
  CHECK(encoded(file, "hello") == Tokens{2000, 3});
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  CHECK(encoded(file, "the") == Tokens{2000, 6});
}

namespace {

// Returns a tokenizer.json in the style of Llama 2: <unk>, <s>, 256 bytes from number 3 on, then characters and words.
json fallback_file() {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  int id = 300;
  for (const char* word : {"▁", "h", "e", "l", "o", "é", "▁h", "▁he", "ll", "▁hell", "▁hello", "▁▁"})
    vocabulary[word] = id++;
  json file = json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true, "normalized": false},
                     {"id": 1, "content": "<s>", "special": true, "normalized": false},
                     {"id": 2, "content": "</s>", "special": true, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true}})");
  file["model"]["vocab"] = vocabulary;
  file["model"]["merges"] = {"▁ h", "▁h e", "l l", "▁he ll", "▁hell o", "▁ ▁"};
  return file;
}

}  // namespace

// Numbers are those that the rules of Hugging Face's tokenizers give by hand: normalizers act on each stretch between
// special tokens, and a character without a token is its bytes.
TEST_CASE("A tokenizer.json with byte_fallback makes tokens of characters, and of bytes what has none") {
  json file = fallback_file();
  CHECK(encoded(file, "hello hé") == Tokens{1, 310, 306, 305});
  CHECK(encoded(file, " hello") == Tokens{1, 300, 310});  // "▁ h" comes before "▁ ▁"
  CHECK(encoded(file, "h  ") == Tokens{1, 306, 311});
  CHECK(encoded(file, "é漢\n") == Tokens{1, 300, 305, 3 + 0xe6, 3 + 0xbc, 3 + 0xa2, 3 + '\n'});
  CHECK(encoded(file, "h</s>h") == Tokens{1, 306, 2, 306});
  CHECK(encoded(file, "") == Tokens{1});
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "t");
  std::string text;
  for (const std::int32_t token : tokenizer.encode("hello 漢\tx")) text += tokenizer.bytes_of(token);
  CHECK(text == "<s> hello 漢\tx");
  // Gemma: no space before a text, and a cut at spaces that are no longer there.
  file["normalizer"] = json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})");
  file["pre_tokenizer"] =
      json::parse(R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"})");
  CHECK(encoded(file, "hello hello") == Tokens{1, 301, 302, 308, 304, 310});
  // Mistral: Metaspace before the first stretch alone; with `split` no merge goes over a space.
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] =
      json::parse(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})");
  CHECK(encoded(file, "hello  h</s>h") == Tokens{1, 310, 300, 306, 2, 301});
  CHECK(encoded(file, " h") == Tokens{1, 306});
  file["pre_tokenizer"]["split"] = true;
  file["pre_tokenizer"]["prepend_scheme"] = "always";
  CHECK(encoded(file, "hello  h</s>h") == Tokens{1, 310, 300, 306, 2, 306});
  const auto refusal = [](const std::string& patch) {
    json changed = fallback_file();
    changed.merge_patch(json::parse(patch));
    return message_of([&] { encoded(changed, "h"); });
  };
  CHECK_THAT(refusal(R"({"normalizer": {"type": "NFKC"}})"), Contains("normalizer.type: expected Prepend or Replace"));
  CHECK_THAT(refusal(R"({"normalizer": null})"), Contains("normalizer: expected a Replace of spaces"));
  CHECK_THAT(refusal(R"({"decoder": {"type": "ByteLevel"}})"), Contains("decoder.type: expected Replace"));
  CHECK_THAT(refusal(R"({"model": {"vocab": {"<0x41>": null}}})"), Contains("got no <0x41>"));
  CHECK_THAT(message_of([&] { Tokenizer::parse("GGUF\x03", "m.gguf"); }), Contains("a GGUF file"));
}

TEST_CASE("Bytes are tokens without a file") {
  const Tokenizer bytes = Tokenizer::of_bytes();
  CHECK(bytes.encode("a\xff") == Tokens{97, 255});
  CHECK(bytes.bytes_of(255) == "\xff");
  CHECK(bytes.size() == 256);
}

TEST_CASE("What a tokenizer.json asks for and this reader does not do is refused by name") {
  const auto refusal = [](const std::string& patch) {
    json file = tokenizer_file();
    file.merge_patch(json::parse(patch));
    return message_of([&] { encoded(file, "é"); });
  };
  CHECK_THAT(refusal(R"({"model": {"type": "Unigram"}})"), Contains("tokenizer.json: model.type: expected BPE"));
  CHECK_THAT(refusal(R"({"model": {"byte_fallback": true}})"),
             Contains("model.vocab: expected a token for each byte, got no <0x00>"));
  CHECK_THAT(refusal(R"({"model": {"vocab": {"a": null}}})"), Contains("none for 0x61"));
  CHECK_THAT(refusal(R"({"model": {"vocab": {"a": -1}}})"), Contains("model.vocab.a: expected a token's number"));
  CHECK_THAT(refusal(R"({"model": {"vocab": {"▁a": 3}}})"), Contains("GPT-2's alphabet"));
  CHECK_THAT(refusal(R"({"model": {"merges": ["x y"]}})"), Contains("model.merges: expected two tokens that together"));
  CHECK_THAT(refusal(R"({"normalizer": {"type": "NFKC"}})"), Contains("normalizer.type: expected NFC"));
  CHECK(refusal(R"({"normalizer": {"type": "NFC"}})") == "no error");
  CHECK_THAT(refusal(R"({"pre_tokenizer": {"type": "Metaspace", "pretokenizers": null}})"), Contains("got Metaspace"));
  CHECK_THAT(refusal(R"({"pre_tokenizer": {"pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\s+"}}]}})"),
             Contains("pre_tokenizer.pattern.Regex: expected that of GPT-2, Llama 3 or Qwen"));
  CHECK_THAT(refusal(R"({"decoder": {"type": "Metaspace"}})"), Contains("decoder.type: expected ByteLevel"));
  CHECK_THAT(refusal(R"({"post_processor": {"type": "RobertaProcessing"}})"), Contains("post_processor.type"));
  CHECK_THAT(refusal(R"({"added_tokens": [{"id": 1, "content": "<x>", "lstrip": true}]})"),
             Contains("added_tokens.lstrip: expected false"));
  json nfc = tokenizer_file();
  nfc["normalizer"] = {{"type", "NFC"}};
  CHECK_THAT(message_of([&] { encoded(nfc, "\xcc\x81"); }), Contains("normalizer: expected a prompt"));
  CHECK_THAT(message_of([&] { encoded(nfc, "\xff"); }), Contains("byte 1: expected UTF-8"));
  // A token's name may hold a NUL, at which a message must not end; its number may not be beyond any vocabulary.
  CHECK_THAT(refusal(R"({"model": {"vocab": {"\u0000a": 3}}})"), Contains("got \"\\x00a\"") && Contains("GPT-2's"));
  CHECK_THAT(refusal(R"({"added_tokens": [{"id": 16777215, "content": "<x>"}]})"),
             Contains("reading it takes more than"));
  CHECK_THAT(message_of([&] { Tokenizer::parse(std::string(100, '['), "t.json"); }), Contains("at most 64 times"));
  for (const char* text : {"", "[]", "{}", "{\"model\": 3}", "{\"added_tokens\": [3]}"})
    CHECK_THAT(message_of([&] { Tokenizer::parse(text, "t.json"); }), Contains("t.json"));
}
