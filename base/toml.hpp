#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace stretto {

// A located reader of TOML 1.0 files, on top of toml11. It reads the files that people write (scenarios, platforms):
// the caller asks for every key that exists, then calls finish(), which reports a key that nobody asked for as unknown.
//
// Every failure is an Error(input) of one line:
//   file:line: [section] key: expected …, got …; did you mean "…"?
//   --set section.key: expected …, got …                                  (the value came from an override)
//   script.sh:12: --flag: [section] key: expected …, got …                 (the value has an origin)

// Bounds that protect the parser from hostile files: it recurses into nested values, and so does what frees them.
constexpr std::size_t kTomlMaxBytes = 1 << 20;
constexpr std::size_t kTomlMaxLineBytes = 1 << 12;  // bounds the dots of a key before it is parsed
constexpr int kTomlMaxBrackets = 16;                // arrays and inline tables inside each other
constexpr int kTomlMaxDots = 8;                     // in one key

// A value and its line in the file. An override has line 0, a value of with_defaults() has kDefaultLine. Numbers are
// finite, strings are UTF-8 without NUL. The parser rejects dates and times.
constexpr int kDefaultLine = -1;
struct TomlNode {
  using Array = std::vector<TomlNode>;
  using Table = std::map<std::string, TomlNode>;
  std::variant<bool, std::int64_t, double, std::string, Array, Table> data;
  int line = 1;
  // The place that messages name instead of the line, where another file is the origin of the value: "script.sh:12:
  // --num-layers". Of a table: the place of a key that the table lacks.
  std::shared_ptr<const std::string> origin = nullptr;
};

// Parses text into the root table. `name` stands for the file in messages.
TomlNode parse_toml_nodes(std::string_view text, const std::string& name);

// Returns whether every byte belongs to valid UTF-8 and none is NUL.
bool is_toml_text(std::string_view text);

// Bounds of a number, inclusive unless said otherwise.
template <typename T>
struct Limits {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed
};
struct NoLimits {};

template <typename T>
struct LimitsFor {
  using type = std::conditional_t<std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>, Limits<T>, NoLimits>;
};
template <typename T>
struct LimitsFor<std::vector<T>> : LimitsFor<T> {};  // the limits hold for every element
template <typename T>
using LimitsOf = typename LimitsFor<T>::type;

// One table of a file, which remembers the keys that have been asked for. Shares ownership of the parsed file. Not
// thread-safe.
class TomlTable {
 public:
  // `path` is the dotted section name, "" for the root.
  TomlTable(std::shared_ptr<const TomlNode> root, const TomlNode* table, std::string file, std::string path);

  bool present() const { return node_ != nullptr; }  // false: the file has no such table, and every key is absent
  bool empty() const;                                // the file has no key in the table; overrides do not count
  std::vector<std::string> keys() const;
  std::vector<std::string> default_keys() const;  // the keys whose values with_defaults() gave
  bool has(const std::string& key);
  bool has_array(const std::string& key) const;  // the value is an array

  // Declares `other` another spelling of `key`. From now on `key` stands for both, and messages name the spelling in
  // the file. Throws Error(input) where the file has both. Not for keys that were already asked for.
  void also_spelled(const std::string& key, const std::string& other);

  // Returns the table under `key`; an absent table reads as empty.
  TomlTable section(const std::string& key);
  // Returns the array of tables under `key` ([[key]]); empty when absent.
  std::vector<TomlTable> tables(const std::string& key);

  // Returns the value of `key`, nullopt when absent. T is bool, int64_t, double (integers are accepted), std::string,
  // or a vector of int64_t, double or std::string.
  template <typename T>
  std::optional<T> find(const std::string& key, LimitsOf<T> limits = {});

  // Returns "file:line: [section] key", or the option that set the key.
  std::string place(const std::string& key) const;
  // Returns the error "place: expected …, got <the value of key>".
  Error error(const std::string& key, const std::string& expected) const;
  // Returns the error "place: message".
  Error failure(const std::string& key, const std::string& message) const;

  // Returns the keys that nobody asked for and that are no slip of one that somebody did, and marks them as known.
  std::vector<std::string> take_unknown();
  // Throws for the first key (by line) that nobody asked for.
  void finish() const;

 private:
  friend TomlTable with_defaults(const TomlTable& root, const TomlTable& defaults);
  const TomlNode::Table& table() const;
  const TomlNode* look(const std::string& key);              // marks the key as known
  const TomlNode* peek(const std::string& key) const;        // does not mark the key as known
  const std::string& written(const std::string& key) const;  // the spelling in the file

  std::shared_ptr<const TomlNode> root_;
  const TomlNode* node_;
  std::string file_, path_;
  std::vector<std::string> known_;
  std::map<std::string, std::string> written_;  // key → the other spelling, where the file has that
};

template <typename T>
T require(TomlTable& table, const std::string& key, LimitsOf<T> limits = {});
template <typename T>
T value_or(TomlTable& table, const std::string& key, std::type_identity_t<T> fallback, LimitsOf<T> limits = {}) {
  return table.find<T>(key, limits).value_or(std::move(fallback));
}
// Returns a string that must be one of `choices`.
std::string choice_or(TomlTable& table, const std::string& key, const std::string& fallback,
                      const std::vector<std::string>& choices);
// Returns the elements of an array of such strings, at least one; a single string is an array of one.
std::vector<std::string> choices_or(TomlTable& table, const std::string& key, const std::string& fallback,
                                    const std::vector<std::string>& choices);

// Parses text. `overrides` are "section.key=value", applied in order after parsing. The value is a TOML value; text
// that is not one and does not begin like a string, array or table is taken as a string, so quotes may be left out.
TomlTable parse_toml(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {});
// Reads a file of at most kTomlMaxBytes. Throws as parse_toml does.
TomlTable read_toml(const std::string& path, const std::vector<std::string>& overrides = {});

// Returns `root` with the keys that only `defaults` has; tables are merged key by key.
TomlTable with_defaults(const TomlTable& root, const TomlTable& defaults);

// Quotes text for a message: control characters escaped, cut to 60 bytes, always one line.
std::string in_quotes(std::string_view text);

}  // namespace stretto
