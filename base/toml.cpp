#include "base/toml.hpp"

#include <algorithm>
#include <cassert>

#include "base/charconv.hpp"
#include "base/near_spellings.hpp"

namespace stretto {
namespace {

std::string text_of(std::int64_t number) { return std::to_string(number); }
std::string text_of(double number) { return shortest_text(number); }

std::string display(const TomlNode* node) {
  if (!node) return "nothing";
  struct Shower {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return text_of(value); }
    std::string operator()(double value) const { return text_of(value); }
    std::string operator()(const std::string& value) const { return in_quotes(value); }
    std::string operator()(const TomlNode::Array& value) const {
      return value.size() == 1 ? "an array of 1 value" : "an array of " + std::to_string(value.size()) + " values";
    }
    std::string operator()(const TomlNode::Table&) const { return "a table"; }
  };
  return std::visit(Shower{}, node->data);
}

template <typename T>
std::string range_text(const Limits<T>& limits) {
  const Limits<T> open;
  const bool low = limits.min != open.min, high = limits.max != open.max;
  const std::string above = limits.above_min ? " above " : " of at least ";
  const std::string below = limits.below_max ? " below " : " at most ";
  if (low && high && !limits.above_min && !limits.below_max)
    return " from " + text_of(limits.min) + " to " + text_of(limits.max);
  std::string text;
  if (low) text += above + text_of(limits.min);
  if (high) text += (low ? " and" : " of") + below + text_of(limits.max);
  return text;
}

template <typename T>
bool inside(T value, const Limits<T>& limits) {
  return (limits.above_min ? value > limits.min : value >= limits.min) &&
         (limits.below_max ? value < limits.max : value <= limits.max);
}

template <typename T>
constexpr bool kIsVector = false;
template <typename T>
constexpr bool kIsVector<std::vector<T>> = true;

template <typename T>
std::string expected_text(const LimitsOf<T>& limits, bool plural = false) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return plural ? "strings" : "a string";
  if constexpr (std::is_same_v<T, std::int64_t>) return (plural ? "integers" : "an integer") + range_text(limits);
  if constexpr (std::is_same_v<T, double>) return (plural ? "numbers" : "a number") + range_text(limits);
  if constexpr (kIsVector<T>) return "an array of " + expected_text<typename T::value_type>(limits, true);
}

// Returns the node as a T within the limits; otherwise nullopt, with the offending node in `culprit`.
template <typename T>
std::optional<T> value_of(const TomlNode& node, const LimitsOf<T>& limits, const TomlNode*& culprit) {
  culprit = &node;
  if constexpr (kIsVector<T>) {
    const auto* array = std::get_if<TomlNode::Array>(&node.data);
    if (!array) return std::nullopt;
    T values;
    for (const TomlNode& element : *array) {
      auto value = value_of<typename T::value_type>(element, limits, culprit);
      if (!value) return std::nullopt;
      values.push_back(std::move(*value));
    }
    return values;
  } else {
    std::optional<T> value;
    if (const T* exact = std::get_if<T>(&node.data)) value = *exact;
    if constexpr (std::is_same_v<T, double>)
      if (const auto* whole = std::get_if<std::int64_t>(&node.data)) value = static_cast<double>(*whole);
    if constexpr (!std::is_same_v<LimitsOf<T>, NoLimits>)
      if (value && !inside(*value, limits)) return std::nullopt;
    return value;
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_spelling(word, candidates);
  return nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
}

// Returns a key as a person would write it: without quotes where TOML allows that.
std::string shown_key(const std::string& key) {
  const bool bare = !key.empty() && key.size() <= 60 && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return c == '_' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return bare ? key : in_quotes(key);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string shown = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // The cut must not fall inside a character, which would leave invalid UTF-8.
    if (i >= kLongest && (byte & 0xC0u) != 0x80u) {
      shown += "…";
      break;
    }
    constexpr const char* kHex = "0123456789abcdef";
    if (byte < 0x20 || byte == 0x7F)
      shown += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    else
      shown += text[i];
  }
  return shown + "\"";
}

TomlTable::TomlTable(std::shared_ptr<const TomlNode> root, const TomlNode* table, std::string file, std::string path)
    : root_(std::move(root)), node_(table), file_(std::move(file)), path_(std::move(path)) {
  assert(!node_ || std::holds_alternative<TomlNode::Table>(node_->data));
}

const TomlNode::Table& TomlTable::table() const {
  static const TomlNode::Table kEmpty;
  return node_ ? std::get<TomlNode::Table>(node_->data) : kEmpty;
}

std::vector<std::string> TomlTable::keys() const {
  std::vector<std::string> names;
  for (const auto& entry : table()) names.push_back(entry.first);
  return names;
}

std::vector<std::string> TomlTable::default_keys() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : table())
    if (node.line == kDefaultLine) names.push_back(name);
  return names;
}

const std::string& TomlTable::written(const std::string& key) const {
  const auto found = written_.find(key);
  return found == written_.end() ? key : found->second;
}

const TomlNode* TomlTable::peek(const std::string& key) const {
  const auto found = table().find(written(key));
  return found == table().end() ? nullptr : &found->second;
}

const TomlNode* TomlTable::look(const std::string& key) {
  if (node_) known_.push_back(key);  // finish() has nothing to say of an absent table
  return peek(key);
}

bool TomlTable::has_array(const std::string& key) const {
  const TomlNode* node = peek(key);
  return node != nullptr && std::holds_alternative<TomlNode::Array>(node->data);
}

bool TomlTable::has(const std::string& key) { return look(key) != nullptr; }

void TomlTable::also_spelled(const std::string& key, const std::string& other) {
  if (!look(other)) return;
  if (peek(key))
    throw failure(other, "expected only one of " + written(key) + " and " + other + " (the same setting), got both");
  written_[key] = other;
}

bool TomlTable::empty() const {
  return std::all_of(table().begin(), table().end(), [](const auto& entry) { return entry.second.line == 0; });
}

std::string TomlTable::place(const std::string& key) const {
  const TomlNode* node = peek(key);
  const std::string shown = shown_key(written(key));
  if (node && node->line == 0) return "--set " + (path_.empty() ? "" : path_ + ".") + shown;
  if (node && node->line == kDefaultLine)
    return file_ + ": default of the profile: " + (path_.empty() ? "" : "[" + path_ + "] ") + shown;
  const std::string what = (path_.empty() ? "" : "[" + path_ + "] ") + shown;
  if (const TomlNode* at = node ? node : node_; at && at->origin) return *at->origin + ": " + what;
  const int line = node ? node->line : node_ && node_->line > 0 ? node_->line : 1;
  return file_ + ":" + std::to_string(line) + ": " + what;
}

Error TomlTable::failure(const std::string& key, const std::string& message) const {
  return input_error(place(key) + ": " + message);
}

Error TomlTable::error(const std::string& key, const std::string& expected) const {
  return failure(key, "expected " + expected + ", got " + display(peek(key)));
}

TomlTable TomlTable::section(const std::string& key) {
  const TomlNode* node = look(key);
  const std::string shown = shown_key(written(key)), path = path_.empty() ? shown : path_ + "." + shown;
  if (node && !std::holds_alternative<TomlNode::Table>(node->data)) throw error(key, "a table [" + path + "]");
  return TomlTable(root_, node, file_, path);
}

std::vector<TomlTable> TomlTable::tables(const std::string& key) {
  const TomlNode* node = look(key);
  if (!node) return {};
  const std::string shown = shown_key(written(key)), path = path_.empty() ? shown : path_ + "." + shown;
  const auto* array = std::get_if<TomlNode::Array>(&node->data);
  if (!array) throw error(key, "an array of tables [[" + path + "]]");
  std::vector<TomlTable> readers;
  for (const TomlNode& element : *array) {
    if (!std::holds_alternative<TomlNode::Table>(element.data))
      throw failure(key, "expected an array of tables [[" + path + "]], got one with " + display(&element));
    readers.emplace_back(root_, &element, file_, path + "[" + std::to_string(readers.size()) + "]");
  }
  return readers;
}

template <typename T>
std::optional<T> TomlTable::find(const std::string& key, LimitsOf<T> limits) {
  const TomlNode* node = look(key);
  if (!node) return std::nullopt;
  const TomlNode* culprit = nullptr;
  std::optional<T> value = value_of<T>(*node, limits, culprit);
  if (value) return value;
  const std::string expected = "expected " + expected_text<T>(limits);
  if (culprit == node) throw failure(key, expected + ", got " + display(node));
  throw failure(key, expected + ", got one with " + display(culprit));
}

template <typename T>
T require(TomlTable& table, const std::string& key, LimitsOf<T> limits) {
  std::optional<T> value = table.find<T>(key, limits);
  if (!value) throw table.error(key, expected_text<T>(limits));
  return std::move(*value);
}

template std::optional<bool> TomlTable::find<bool>(const std::string&, NoLimits);
template std::optional<std::string> TomlTable::find<std::string>(const std::string&, NoLimits);
template std::optional<std::int64_t> TomlTable::find<std::int64_t>(const std::string&, Limits<std::int64_t>);
template std::optional<double> TomlTable::find<double>(const std::string&, Limits<double>);
template std::optional<std::vector<std::string>> TomlTable::find<std::vector<std::string>>(const std::string&,
                                                                                           NoLimits);
template std::optional<std::vector<std::int64_t>> TomlTable::find<std::vector<std::int64_t>>(const std::string&,
                                                                                             Limits<std::int64_t>);
template std::optional<std::vector<double>> TomlTable::find<std::vector<double>>(const std::string&, Limits<double>);

template bool require<bool>(TomlTable&, const std::string&, NoLimits);
template std::string require<std::string>(TomlTable&, const std::string&, NoLimits);
template std::int64_t require<std::int64_t>(TomlTable&, const std::string&, Limits<std::int64_t>);
template double require<double>(TomlTable&, const std::string&, Limits<double>);
template std::vector<std::string> require<std::vector<std::string>>(TomlTable&, const std::string&, NoLimits);
template std::vector<std::int64_t> require<std::vector<std::int64_t>>(TomlTable&, const std::string&,
                                                                      Limits<std::int64_t>);
template std::vector<double> require<std::vector<double>>(TomlTable&, const std::string&, Limits<double>);

namespace {

void require_choice(const TomlTable& table, const std::string& key, const std::string& value,
                    const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) == choices.end())
    throw table.failure(
        key, "expected one of " + joined(choices) + ", got " + in_quotes(value) + suggestion(value, choices));
}

}  // namespace

std::string choice_or(TomlTable& table, const std::string& key, const std::string& fallback,
                      const std::vector<std::string>& choices) {
  const std::string value = value_or<std::string>(table, key, fallback);
  require_choice(table, key, value, choices);
  return value;
}

std::vector<std::string> choices_or(TomlTable& table, const std::string& key, const std::string& fallback,
                                    const std::vector<std::string>& choices) {
  if (!table.has_array(key)) return {choice_or(table, key, fallback, choices)};
  const auto values = require<std::vector<std::string>>(table, key);
  if (values.empty()) throw table.failure(key, "expected one of " + joined(choices) + ", or several, got none");
  for (const std::string& value : values) require_choice(table, key, value, choices);
  return values;
}

std::vector<std::string> TomlTable::take_unknown() {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : table())
    if (std::find(known_.begin(), known_.end(), key) == known_.end() && suggestion(key, known_).empty())
      unknown.push_back(key);
  known_.insert(known_.end(), unknown.begin(), unknown.end());
  return unknown;
}

void TomlTable::finish() const {
  const std::pair<const std::string, TomlNode>* unknown = nullptr;
  for (const auto& entry : table()) {
    const bool known = std::find(known_.begin(), known_.end(), entry.first) != known_.end();
    if (!known && (!unknown || entry.second.line < unknown->second.line)) unknown = &entry;
  }
  if (!unknown) return;
  std::vector<std::string> asked;  // in the order in which they were first asked for
  for (const std::string& one : known_)
    if (std::find(asked.begin(), asked.end(), one) == asked.end()) asked.push_back(one);
  const std::string& key = unknown->first;
  const std::string hint = suggestion(key, asked);
  // A list of a hundred keys is not read.
  constexpr std::size_t kMostListed = 12;
  const std::string nearest = asked.size() > kMostListed ? joined(near_spellings(key, asked, 3)) : "";
  const std::string listed =
      nearest.empty() ? joined(asked) : std::to_string(asked.size()) + " keys (nearest: " + nearest + ")";
  throw failure(key, hint.empty() ? "expected one of " + listed + ", got an unknown key"
                                  : "expected a known key, got " + in_quotes(key) + hint);
}

namespace {

void mark_as_default(TomlNode& node) {
  node.line = kDefaultLine;
  if (auto* array = std::get_if<TomlNode::Array>(&node.data))
    for (TomlNode& element : *array) mark_as_default(element);
  if (auto* table = std::get_if<TomlNode::Table>(&node.data))
    for (auto& entry : *table) mark_as_default(entry.second);
}

void merge(TomlNode& into, const TomlNode& defaults) {
  auto* table = std::get_if<TomlNode::Table>(&into.data);
  const auto* other = std::get_if<TomlNode::Table>(&defaults.data);
  if (!table || !other) return;
  for (const auto& [key, node] : *other) {
    const auto [entry, is_new] = table->try_emplace(key, node);
    if (is_new)
      mark_as_default(entry->second);
    else
      merge(entry->second, node);
  }
}

}  // namespace

TomlTable with_defaults(const TomlTable& root, const TomlTable& defaults) {
  auto merged = std::make_shared<TomlNode>(*root.node_);
  if (defaults.node_) merge(*merged, *defaults.node_);
  const TomlNode* table = merged.get();
  return TomlTable(std::move(merged), table, root.file_, root.path_);
}

}  // namespace stretto
