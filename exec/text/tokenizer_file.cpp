#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/json_cost.hpp"
#include "base/printable.hpp"
#include "base/read_file.hpp"
#include "base/utf8.hpp"
#include "exec/text/tokenizer.hpp"

namespace stretto::exec {

// The keys of a tokenizer.json, read one by one.
class TokenizerFile {
 public:
  TokenizerFile(std::string_view text, std::string name)
      : name_(std::move(name)), budget_(name_, BudgetLimits::in_proportion(text.size(), kAdvice)) {
    text = require_text(text, name_);
    charge_json(text, budget_);
    root_ = nlohmann::json::parse(text, nullptr, false);
    if (!root_.is_object()) throw failure("", "expected the JSON of a tokenizer");
  }
  const nlohmann::json& root() const { return root_; }

  Error failure(const std::string& key, const std::string& what) const {
    // A name in the file may hold any character, also NUL, which would end the message.
    return input_error(name_ + ": " + (key.empty() ? "" : printable(key) + ": ") + printable(what));
  }
  // Returns a value; null where the key is absent.
  static const nlohmann::json& at(const nlohmann::json& in, const char* key) {
    static const nlohmann::json null;
    const auto found = in.is_object() ? in.find(key) : in.end();
    return in.is_object() && found != in.end() ? *found : null;
  }
  std::string type_of(const nlohmann::json& part, const std::string& key) const {
    const nlohmann::json& type = at(part, "type");
    if (!type.is_string()) throw failure(key, "expected an object with a type");
    return type.get<std::string>();
  }
  // Refuses a key unless it is absent, null or `wanted`.
  void require(const nlohmann::json& in, const std::string& where, const char* key,
               const nlohmann::json& wanted) const {
    const nlohmann::json& value = at(in, key);
    if (!value.is_null() && value != wanted)
      throw failure(where + "." + key, "expected " + wanted.dump() + ", got " + shown(value));
  }
  std::int32_t id(const nlohmann::json& value, const std::string& key) const {
    constexpr std::int64_t kMost = 1 << 24;
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() >= kMost)
      throw failure(key, fmt::format("expected a token's number below {}, got {}", kMost, shown(value)));
    return value.get<std::int32_t>();
  }
  const std::string& text(const nlohmann::json& value, const std::string& key) const {
    if (!value.is_string()) throw failure(key, "expected a string, got " + shown(value));
    return value.get_ref<const std::string&>();
  }
  Budget& budget() { return budget_; }
  static std::string shown(const nlohmann::json& value) {
    const std::string all = value.dump(-1, ' ', true);
    return all.size() <= 200 ? all : all.substr(0, 200) + "…";
  }

 private:
  static constexpr const char* kAdvice =
      "a tokenizer has fewer and shorter tokens; take the model's own tokenizer.json";
  std::string name_;
  Budget budget_;
  nlohmann::json root_;
};

namespace {

using nlohmann::json;

// Returns the byte that each character of GPT-2's alphabet stands for. Printable bytes of Latin-1 are themselves; the
// others are the characters from U+0100 on.
std::map<char32_t, char> byte_alphabet() {
  std::map<char32_t, char> alphabet;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet[is_itself ? static_cast<char32_t>(byte) : next++] = static_cast<char>(byte);
  }
  return alphabet;
}

// Returns the bytes that a token's name stands for; nullopt where it has a character outside of the alphabet.
std::optional<std::string> bytes_of_name(const std::string& name) {
  static const std::map<char32_t, char> alphabet = byte_alphabet();
  std::string bytes;
  for (std::size_t i = 0, length = 0; i < name.size(); i += length) {
    length = utf8_length(std::string_view(name).substr(i));
    const auto found = alphabet.find(code_point_of(std::string_view(name).substr(i, length)));
    if (found == alphabet.end()) return std::nullopt;
    bytes += found->second;
  }
  return bytes;
}

constexpr const char* kSpaceMark = "\xe2\x96\x81";  // U+2581, "▁": a space in SentencePiece's tokens

// Returns the bytes of a token of characters: "<0x0A>" is a byte, and the mark of a space is a space.
std::string bytes_of_character_token(const std::string& name) {
  constexpr std::size_t kOfByte = 6;
  if (name.size() == kOfByte && name.starts_with("<0x") && name.ends_with('>')) {
    int byte = 0;
    const auto [end, error] = std::from_chars(name.data() + 3, name.data() + kOfByte - 1, byte, 16);
    if (error == std::errc{} && end == name.data() + kOfByte - 1) return {static_cast<char>(byte)};
  }
  std::string bytes = name;
  const std::string mark = kSpaceMark;
  for (std::size_t at = 0; (at = bytes.find(mark, at)) != std::string::npos; ++at) bytes.replace(at, mark.size(), " ");
  return bytes;
}

std::optional<PreTokens> read_cut(const TokenizerFile& file, const json& part, const std::string& key) {
  const std::string type = file.type_of(part, key);
  if (type == "ByteLevel")
    return TokenizerFile::at(part, "use_regex") == json(false) ? std::nullopt : std::optional(PreTokens::gpt2);
  if (type != "Split") throw file.failure(key + ".type", "expected ByteLevel or Split, got " + type);
  file.require(part, key, "behavior", "Isolated");
  file.require(part, key, "invert", false);
  const json& pattern = TokenizerFile::at(TokenizerFile::at(part, "pattern"), "Regex");
  const std::string place = key + ".pattern.Regex";
  const auto cut = pre_tokens_of(file.text(pattern, place));
  if (!cut) throw file.failure(place, "expected that of GPT-2, Llama 3 or Qwen, got " + TokenizerFile::shown(pattern));
  return cut;
}

// Returns the parts of a Sequence, or the only one.
std::vector<json> parts_of(const TokenizerFile& file, const char* key, const char* list) {
  const json& whole = TokenizerFile::at(file.root(), key);
  if (whole.is_null()) return {};
  if (file.type_of(whole, key) != "Sequence") return {whole};
  const json& parts = TokenizerFile::at(whole, list);
  if (!parts.is_array()) throw file.failure(std::string(key) + "." + list, "expected an array");
  return parts;
}

}  // namespace

// Makes a tokenizer of a file, part by part: later parts name tokens of earlier ones.
class Tokenizer::Maker {
 public:
  explicit Maker(TokenizerFile& file, const std::string& name) : file_(file) { made_.name_ = name; }

  Tokenizer make() {
    const json& model = at(file_.root(), "model");
    if (const json& type = at(model, "type"); !type.is_null() && type != "BPE")
      throw file_.failure("model.type", "expected BPE, got " + TokenizerFile::shown(type));
    file_.require(model, "model", "dropout", 0.0);
    made_.has_fallback_ = at(model, "byte_fallback") == json(true);
    file_.require(model, "model", "continuing_subword_prefix", "");
    file_.require(model, "model", "end_of_word_suffix", "");
    made_.ignores_merges_ = at(model, "ignore_merges") == json(true);
    read_vocabulary(at(model, "vocab"));
    read_merges(at(model, "merges"));
    read_special();
    if (made_.has_fallback_)
      read_spaces();
    else
      read_cuts();
    read_tokens_before();
    return std::move(made_);
  }

 private:
  static const json& at(const json& in, const char* key) { return TokenizerFile::at(in, key); }

  void place(std::int32_t id, const std::string& bytes) {
    const std::size_t size = static_cast<std::size_t>(id) + 1;
    if (made_.bytes_.size() < size) {
      file_.budget().keep((size - made_.bytes_.size()) * sizeof(std::string));
      made_.bytes_.resize(size);
    }
    made_.bytes_[static_cast<std::size_t>(id)] = bytes;
  }

  void read_vocabulary(const json& vocabulary) {
    if (!vocabulary.is_object()) throw file_.failure("model.vocab", "expected an object of tokens");
    std::set<std::string> added;
    for (const json& token : at(file_.root(), "added_tokens"))
      added.insert(file_.text(at(token, "content"), "added_tokens.content"));
    for (const auto& [token, number] : vocabulary.items()) {
      const std::int32_t id = file_.id(number, "model.vocab." + token);
      by_name_[token] = id;
      if (made_.has_fallback_) {
        place(id, bytes_of_character_token(token));
        if (!added.contains(token)) made_.tokens_[token] = id;
        continue;
      }
      if (added.contains(token)) continue;
      const auto bytes = bytes_of_name(token);
      if (!bytes)
        throw file_.failure("model.vocab", "expected tokens in GPT-2's alphabet of bytes, got \"" + token + "\"");
      place(id, *bytes);
      made_.tokens_[*bytes] = id;
    }
    if (made_.has_fallback_) return read_byte_tokens();
    for (int byte = 0; byte < 256; ++byte)
      if (!made_.tokens_.contains(std::string(1, static_cast<char>(byte))))
        throw file_.failure("model.vocab", fmt::format("expected a token for each byte, got none for 0x{:02x}", byte));
  }

  void read_byte_tokens() {
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = by_name_.find(fmt::format("<0x{:02X}>", byte));
      if (found == by_name_.end())
        throw file_.failure("model.vocab", fmt::format("expected a token for each byte, got no <0x{:02X}>", byte));
      made_.byte_tokens_.push_back(found->second);
    }
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) throw file_.failure("model.merges", "expected an array");
    for (const json& merge : merges) {
      std::string left, right;
      if (merge.is_array() && merge.size() == 2) {
        left = file_.text(merge[0], "model.merges"), right = file_.text(merge[1], "model.merges");
      } else {
        const std::string& both = file_.text(merge, "model.merges");
        const std::size_t space = both.find(' ');
        left = both.substr(0, space), right = space < both.size() ? both.substr(space + 1) : "";
      }
      const auto a = by_name_.find(left), b = by_name_.find(right), whole = by_name_.find(left + right);
      if (a == by_name_.end() || b == by_name_.end() || whole == by_name_.end())
        throw file_.failure("model.merges",
                            "expected two tokens that together are one, got " + TokenizerFile::shown(merge));
      made_.merges_.try_emplace({a->second, b->second}, Merge{made_.merges_.size(), whole->second});
    }
  }

  void read_special() {
    for (const json& token : at(file_.root(), "added_tokens")) {
      for (const char* key : {"single_word", "lstrip", "rstrip"}) file_.require(token, "added_tokens", key, false);
      const std::string& content = at(token, "content").get_ref<const std::string&>();
      if (content.empty()) throw file_.failure("added_tokens.content", "expected a name, got an empty one");
      const std::int32_t id = file_.id(at(token, "id"), "added_tokens.id");
      const bool is_special = at(token, "special") != json(false);
      place(id, made_.has_fallback_ && !is_special ? bytes_of_character_token(content) : content);
      by_name_[content] = id;
      made_.special_.emplace_back(content, id);
    }
    std::stable_sort(made_.special_.begin(), made_.special_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  // Reads how spaces are written, as SentencePiece does: by normalizers (Llama 2, Gemma) or by Metaspace (Mistral).
  void read_spaces() {
    bool replaces = false;
    for (const json& part : parts_of(file_, "normalizer", "normalizers")) {
      const std::string type = file_.type_of(part, "normalizer");
      if (type == "Prepend") {
        file_.require(part, "normalizer", "prepend", kSpaceMark);
        made_.space_ = Space::before_each;
      } else if (type == "Replace") {
        require_replacement(part, "normalizer", " ", kSpaceMark);
        replaces = true;
      } else {
        throw file_.failure("normalizer.type", "expected Prepend or Replace with byte_fallback, got " + type);
      }
    }
    for (const json& part : parts_of(file_, "pre_tokenizer", "pretokenizers")) {
      const std::string type = file_.type_of(part, "pre_tokenizer");
      if (type == "Split" && replaces) {
        // A text without spaces is not cut at spaces, as Gemma's file asks for.
        if (at(at(part, "pattern"), "String") != json(" "))
          throw file_.failure("pre_tokenizer.pattern", "expected {\"String\":\" \"} with byte_fallback, got " +
                                                           TokenizerFile::shown(at(part, "pattern")));
        continue;
      }
      if (type != "Metaspace")
        throw file_.failure("pre_tokenizer.type", "expected Metaspace or none with byte_fallback, got " + type);
      file_.require(part, "pre_tokenizer", "replacement", kSpaceMark);
      const json& scheme = at(part, "prepend_scheme");
      if (scheme.is_null())
        made_.space_ = at(part, "add_prefix_space") == json(false) ? Space::none : Space::before_each_without;
      else if (scheme == "first" || scheme == "always" || scheme == "never")
        made_.space_ = scheme == "first"    ? Space::before_first
                       : scheme == "always" ? Space::before_each_without
                                            : Space::none;
      else
        throw file_.failure("pre_tokenizer.prepend_scheme",
                            "expected first, always or never, got " + TokenizerFile::shown(scheme));
      made_.cuts_words_ = at(part, "split") != json(false);
      replaces = true;
    }
    if (!replaces) throw file_.failure("normalizer", "expected a Replace of spaces, or Metaspace, with byte_fallback");
    bool has_bytes = false, has_spaces = false;
    for (const json& part : parts_of(file_, "decoder", "decoders")) {
      const std::string type = file_.type_of(part, "decoder");
      if (type == "Replace")
        require_replacement(part, "decoder", kSpaceMark, " ");
      else if (type == "Strip")  // the space before a text, which stands in the prompt
        file_.require(part, "decoder", "content", " ");
      else if (type != "ByteFallback" && type != "Fuse" && type != "Metaspace")
        throw file_.failure("decoder.type",
                            "expected Replace, ByteFallback, Fuse, Strip or Metaspace with byte_fallback, got " + type);
      has_bytes = has_bytes || type == "ByteFallback";
      has_spaces = has_spaces || type == "Replace" || type == "Metaspace";
    }
    if (!has_bytes || !has_spaces)
      throw file_.failure("decoder", "expected Replace and ByteFallback with byte_fallback");
  }
  void require_replacement(const json& part, const std::string& key, const char* from, const char* by) const {
    if (at(at(part, "pattern"), "String") != json(from) || at(part, "content") != json(by))
      throw file_.failure(
          key, fmt::format("expected a Replace of \"{}\" by \"{}\", got {}", from, by, TokenizerFile::shown(part)));
  }

  // Reads how a text is cut into pieces, and that pieces are bytes on both sides.
  void read_cuts() {
    if (const json& normalizer = at(file_.root(), "normalizer"); !normalizer.is_null()) {
      if (const std::string type = file_.type_of(normalizer, "normalizer"); type != "NFC")
        throw file_.failure("normalizer.type", "expected NFC or none, got " + type);
      made_.is_normalised_ = true;
    }
    std::optional<PreTokens> cut;
    bool has_bytes = false;
    for (const json& part : parts_of(file_, "pre_tokenizer", "pretokenizers")) {
      const std::optional<PreTokens> found = read_cut(file_, part, "pre_tokenizer");
      if (cut && found) throw file_.failure("pre_tokenizer", "expected one regular expression, got several");
      if (found) cut = found;
      if (at(part, "type") != "ByteLevel") continue;
      has_bytes = true;
      made_.adds_space_ = at(part, "add_prefix_space") != json(false);
      if (made_.adds_space_ && !found)
        throw file_.failure("pre_tokenizer.add_prefix_space", "expected false after a Split, got true");
    }
    if (!has_bytes || !cut)
      throw file_.failure("pre_tokenizer", "expected ByteLevel, with its regular expression or a Split before it");
    made_.cut_ = *cut;
    if (const json& decoder = at(file_.root(), "decoder"); file_.type_of(decoder, "decoder") != "ByteLevel")
      throw file_.failure("decoder.type", "expected ByteLevel, got " + file_.type_of(decoder, "decoder"));
  }

  void read_tokens_before() {
    for (const json& part : parts_of(file_, "post_processor", "processors")) {
      const std::string type = file_.type_of(part, "post_processor");
      if (type == "ByteLevel") continue;
      if (type != "TemplateProcessing")
        throw file_.failure("post_processor.type", "expected ByteLevel or TemplateProcessing, got " + type);
      bool is_after = false;
      for (const json& item : at(part, "single")) {
        const json& token = at(at(item, "SpecialToken"), "id");
        if (!at(item, "Sequence").is_null()) {
          is_after = true;
          continue;
        }
        if (is_after) throw file_.failure("post_processor.single", "expected no token after the text to be continued");
        const auto found = by_name_.find(file_.text(token, "post_processor.single"));
        if (found == by_name_.end())
          throw file_.failure("post_processor.single", "expected a token, got " + TokenizerFile::shown(token));
        made_.before_.push_back(found->second);
      }
    }
  }

  TokenizerFile& file_;
  Tokenizer made_;
  std::unordered_map<std::string, std::int32_t> by_name_;
};

Tokenizer Tokenizer::parse(std::string_view given, const std::string& name) {
  if (given.starts_with("GGUF"))
    throw input_error(name +
                      ": expected a tokenizer.json, got a GGUF file (llama.cpp); take the model's tokenizer.json");
  TokenizerFile file(given, name);
  return Maker(file, name).make();
}

Tokenizer Tokenizer::open(const std::string& path) {
  ReadFile file = ReadFile::open(path);
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  if (file.size() > kMostBytes) throw input_error(path + ": expected a tokenizer.json of at most 256 MiB, got more");
  const std::vector<std::byte> bytes = std::move(file).take();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace stretto::exec
