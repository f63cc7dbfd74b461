#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>

#include "base/toml.hpp"
#include "base/toml_text.hpp"

namespace stretto {
namespace {

// Texts that no file holds, by name.
struct KeptTexts {
  std::mutex mutex = {};
  std::map<std::string, std::string> texts = {};
};
KeptTexts& kept_texts() {
  static KeptTexts kept;
  return kept;
}

bool is_bare_key(std::string_view key) {
  return !key.empty() && key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                             std::string_view::npos;
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

void mark_as_override(TomlNode& node) {
  node.line = 0;
  if (auto* array = std::get_if<TomlNode::Array>(&node.data))
    for (TomlNode& element : *array) mark_as_override(element);
  if (auto* table = std::get_if<TomlNode::Table>(&node.data))
    for (auto& entry : *table) mark_as_override(entry.second);
}

// Returns a value that needs no parser: a whole number, true or false, or words that begin no value of TOML. A search
// has thousands of them a second.
std::optional<TomlNode> plain_value(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789", kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr std::size_t kMostDigits = 18;  // all of them fit in 64 bits
  if (text.empty()) return std::nullopt;
  if (text.find_first_not_of(kDigits) == std::string_view::npos) {
    if (text.size() > kMostDigits || (text.front() == '0' && text.size() > 1)) return std::nullopt;
    std::int64_t number = 0;
    for (const char digit : text) number = 10 * number + (digit - '0');
    return TomlNode{number, 0};
  }
  if (text == "true" || text == "false") return TomlNode{text == "true", 0};
  // No other value of TOML than these begins with a letter, and none with a slash.
  const bool is_number = text == "inf" || text == "nan";
  const bool is_word = text.front() == '/' || kLetters.find(text.front()) != std::string_view::npos;
  const bool is_plain = std::all_of(text.begin(), text.end(), [&](char c) {
    return kDigits.find(c) != std::string_view::npos || kLetters.find(c) != std::string_view::npos ||
           std::string_view("_-./|").find(c) != std::string_view::npos;
  });
  if (is_word && is_plain && !is_number) return TomlNode{std::string(text), 0};
  return std::nullopt;
}

TomlNode override_value(std::string_view text, const std::string& place) {
  if (std::optional<TomlNode> plain = plain_value(text)) return *std::move(plain);
  if (text.find_first_of("\r\n") != std::string_view::npos)
    throw input_error(place + ": expected a value on one line, got several");
  TomlNode node;
  try {
    node = std::move(std::get<TomlNode::Table>(parse_toml_nodes("value = " + std::string(text), place).data)["value"]);
  } catch (const Error&) {
    const bool starts_like_toml = !text.empty() && std::string_view("\"'[{").find(text[0]) != std::string_view::npos;
    if (starts_like_toml) throw input_error(place + ": expected a TOML value, got " + in_quotes(text));
    if (!is_toml_text(text)) throw input_error(place + ": expected UTF-8 text without NUL, got " + in_quotes(text));
    node.data = std::string(text);
  }
  mark_as_override(node);
  return node;
}

}  // namespace

void apply_override(TomlNode& root, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw input_error("--set " + in_quotes(text) + ": expected section.key=value, got no \"=\"");
  const std::string path(without_blanks(std::string_view(text).substr(0, equals)));
  TomlNode* node = &root;
  std::size_t start = 0;
  for (int depth = 0;; ++depth) {
    const std::size_t dot = path.find('.', start);
    const std::string key = path.substr(start, dot == std::string::npos ? dot : dot - start);
    if (!is_bare_key(key) || depth > kTomlMaxDots)
      throw input_error("--set " + in_quotes(text) + ": expected section.key=value, got the key " + in_quotes(path));
    auto* table = std::get_if<TomlNode::Table>(&node->data);
    if (!table) throw input_error("--set " + path + ": expected a table before ." + key + ", got a single value");
    const bool last = dot == std::string::npos;
    if (last) {
      if (without_blanks(std::string_view(text).substr(equals + 1)).empty()) {
        table->erase(key);
        return;
      }
      (*table)[key] = override_value(without_blanks(std::string_view(text).substr(equals + 1)), "--set " + path);
      return;
    }
    node = &table->try_emplace(key, TomlNode{TomlNode::Table{}, 0}).first->second;
    start = dot + 1;
  }
}

TomlTable with_overrides(TomlNode root, const std::string& name, const std::vector<std::string>& overrides) {
  for (const std::string& one : overrides) apply_override(root, one);
  auto shared = std::make_shared<TomlNode>(std::move(root));
  const TomlNode* table = shared.get();
  return TomlTable(std::move(shared), table, name, "");
}

TomlTable parse_toml(std::string_view text, const std::string& name, const std::vector<std::string>& overrides) {
  return with_overrides(parse_toml_nodes(text, name), name, overrides);
}

void keep_toml(const std::string& name, std::string text) {
  KeptTexts& kept = kept_texts();
  const std::lock_guard lock(kept.mutex);
  kept.texts[name] = std::move(text);
}

std::string toml_text(const std::string& path) {
  {
    KeptTexts& kept = kept_texts();
    const std::lock_guard lock(kept.mutex);
    if (const auto found = kept.texts.find(path); found != kept.texts.end()) return found->second;
  }
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem)) throw input_error(path + ": expected a TOML file, got a directory");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw input_error(path + ": expected a readable TOML file, got: " + std::strerror(errno));
  // One byte more than the limit is enough to refuse; the size is not asked because pipes have none. Most files fit
  // into the first piece.
  std::string text;
  for (std::size_t piece = 1 << 14, size = 0; file && size <= kTomlMaxBytes; piece *= 2) {
    text.resize(std::min(size + piece, kTomlMaxBytes + 1));
    file.read(text.data() + size, static_cast<std::streamsize>(text.size() - size));
    size += static_cast<std::size_t>(file.gcount());
    text.resize(size);
  }
  if (file.bad()) throw input_error(path + ": expected a readable TOML file, got: " + std::strerror(errno));
  return text;
}

TomlTable read_toml(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_toml(toml_text(path), path, overrides);
}

}  // namespace stretto
