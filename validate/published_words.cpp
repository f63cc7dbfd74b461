#include "validate/published_words.hpp"

#include <algorithm>
#include <cctype>

#include "base/toml.hpp"

namespace stretto::validate {
namespace {

using Strings = std::vector<std::string>;

Strings words_of(TomlTable& table) {
  Strings words = require<Strings>(table, "words");
  for (std::string& word : words) word = folded(word);
  return words;
}

// Returns each table of the list under `key`, read by `read(table)`.
template <class Read>
auto entries_of(TomlTable& root, const char* key, Read read) {
  std::vector<decltype(read(root))> entries;
  for (TomlTable& table : root.tables(key)) {
    entries.push_back(read(table));
    table.finish();
  }
  return entries;
}

std::string text(TomlTable& table, const char* key) { return value_or<std::string>(table, key, ""); }

Strings folded_list(TomlTable& table, const char* key) {
  Strings words = value_or<Strings>(table, key, {});
  for (std::string& word : words) word = folded(word);
  return words;
}

PublishedWords::Framework framework_of(TomlTable& table) {
  return {words_of(table),
          text(table, "platform"),
          text(table, "profile"),
          text(table, "said"),
          folded_list(table, "also"),
          value_or<bool>(table, "shards", false),
          value_or<bool>(table, "cuts_vocabulary", false),
          value_or<bool>(table, "selective_op", false),
          text(table, "of_experts"),
          text(table, "flex"),
          value_or<bool>(table, "local_batch", false)};
}

PublishedWords::Word word_of(TomlTable& table) {
  return {words_of(table), text(table, "means"), text(table, "refused")};
}

PublishedWords::Model model_of(TomlTable& table) {
  return {words_of(table),
          text(table, "refused"),
          text(table, "keys"),
          text(table, "said"),
          value_or<std::int64_t>(table, "vocab_size", 0, {.min = 0}),
          value_or<bool>(table, "experts", false),
          value_or<bool>(table, "always", false),
          text(table, "style"),
          value_or<bool>(table, "multi_head", false)};
}

// Returns the words of a key that has one or a list of them.
Strings list(TomlTable& table, const char* one, const char* several) {
  Strings words = value_or<Strings>(table, several, {});
  if (table.has(one)) words.push_back(text(table, one));
  return words;
}

PublishedWords::Habit habit_of(TomlTable& table) {
  Strings models = list(table, "model", "models"), sources = list(table, "source", "sources");
  for (Strings* words : {&models, &sources})
    for (std::string& word : *words) word = folded(word);
  return {require<Strings>(table, "of"),
          text(table, "task"),
          text(table, "technique"),
          text(table, "unless"),
          models,
          sources,
          list(table, "precision", "precisions"),
          value_or<Strings>(table, "platforms", {}),
          value_or<bool>(table, "pipeline", false),
          value_or<bool>(table, "tensor", false),
          value_or<bool>(table, "whole", false),
          text(table, "profile"),
          text(table, "section"),
          text(table, "keys"),
          text(table, "said"),
          text(table, "refused"),
          text(table, "precision_is")};
}

}  // namespace

std::string folded(std::string_view text) {
  std::string result;
  for (const unsigned char letter : text)
    if (std::string_view(" \t-_():=\"'").find(static_cast<char>(letter)) == std::string_view::npos)
      result += static_cast<char>(std::tolower(letter));
  return result;
}

namespace {

// Returns whether letters i − 1 and i of a cell belong to different words: not both letters or both digits, or a
// capital after a small letter.
bool begins_word(std::string_view cell, std::size_t i) {
  if (i == 0 || i >= cell.size()) return true;
  const auto before = static_cast<unsigned char>(cell[i - 1]), at = static_cast<unsigned char>(cell[i]);
  if (std::isalpha(before) != 0 && std::isalpha(at) != 0) return std::islower(before) != 0 && std::isupper(at) != 0;
  return !(std::isdigit(before) != 0 && std::isdigit(at) != 0);
}

}  // namespace

Words::Words(std::string_view cell) : cell_(cell) {
  for (std::size_t i = 0; i < cell.size(); ++i) {
    const std::string letter = folded(cell.substr(i, 1));
    if (letter.empty()) continue;
    left_ += letter;
    at_.push_back(i);
  }
}

std::size_t Words::find(const std::string& word) const {
  constexpr std::size_t kShort = 4;  // letters of a word that other words often contain
  for (std::size_t at = left_.find(word); at != std::string::npos; at = left_.find(word, at + 1)) {
    if (word.empty()) return at;
    const std::size_t last = at + word.size() - 1, end = at_[last] + 1;
    bool is_one = true;  // the word is within one word of the cell
    for (std::size_t i = at + 1; i <= last; ++i)
      is_one = is_one && !begins_word(cell_, at_[i]) && at_[i] == at_[i - 1] + 1;
    const bool begins = begins_word(cell_, at_[at]);
    if (begins && (word.size() > kShort || begins_word(cell_, end))) return at;
    if (is_one && word.size() > kShort) return at;
  }
  return std::string::npos;
}

bool Words::take(const Strings& words) {
  for (const std::string& word : words) {
    const std::size_t at = find(word);
    if (at == std::string::npos) continue;
    if (word.empty()) return true;
    left_.replace(at, word.size(), " ");  // the text around it does not become a word
    at_.erase(at_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
              at_.begin() + static_cast<std::ptrdiff_t>(at + word.size()));
    return true;
  }
  return false;
}

bool Words::take_all(const Strings& words) {
  bool has_any = false;
  for (const std::string& word : words)
    while (!word.empty() && take({word})) has_any = true;
  return has_any;
}

Strings Words::rest() const {
  const auto tells = [](unsigned char letter) { return letter >= 0x80 || std::isalnum(letter) != 0; };
  Strings pieces;
  std::string piece;
  const auto end_piece = [&] {
    while (!piece.empty() && piece.back() == '.') piece.pop_back();
    if (std::any_of(piece.begin(), piece.end(), tells)) pieces.push_back(piece);
    piece.clear();
  };
  for (std::size_t i = 0; i < left_.size(); ++i) {
    // Blanks and signs that folding removed end a piece too.
    if (i > 0 && at_[i] != at_[i - 1] + 1) end_piece();
    if (tells(static_cast<unsigned char>(left_[i])) || left_[i] == '.')
      piece += cell_[at_[i]];
    else
      end_piece();
  }
  end_piece();
  return pieces;
}

bool is_label(std::string_view piece) {
  const auto all_of = [&](std::string_view text, const char* letters) {
    return text.find_first_not_of(letters) == std::string_view::npos;
  };
  const std::string low = folded(piece);
  constexpr const char* kDigits = "0123456789";
  const bool has_digit = low.find_first_of(kDigits) != std::string::npos;
  // A commit's short name.
  if (has_digit && low.size() >= 7 && low.size() <= 40 && all_of(low, "0123456789abcdef")) return true;
  std::string_view number = low;
  for (const std::string_view before : {"v", "r", "x"})
    if (number.starts_with(before)) {
      number.remove_prefix(1);
      break;
    }
  const std::size_t digits = std::min(number.find_first_not_of("0123456789."), number.size());
  const std::string_view unit = number.substr(digits);
  return digits > 0 && has_digit &&
         (unit.empty() || unit == "b" || unit == "bn" || unit == "m" || unit == "t" || unit == "k" || unit == "x" ||
          (unit.starts_with("rc") && all_of(unit.substr(2), kDigits)));
}

bool PublishedWords::is_nothing(std::string_view cell) const {
  const std::string word = folded(cell);
  return word.empty() || std::find(nothing.begin(), nothing.end(), word) != nothing.end();
}

PublishedWords read_published_words(const std::string& path) {
  TomlTable root = read_toml(path);
  PublishedWords words;
  words.nothing = require<Strings>(root, "nothing");
  for (std::string& word : words.nothing) word = folded(word);
  words.frameworks = entries_of(root, "framework", framework_of);
  words.gpus = entries_of(root, "gpu", [](TomlTable& table) {
    return PublishedWords::Gpu{words_of(table), text(table, "platform"), folded_list(table, "also")};
  });
  words.precisions = entries_of(root, "precision", word_of);
  words.recomputations = entries_of(root, "recompute", word_of);
  words.tasks = entries_of(root, "task", word_of);
  words.attentions = entries_of(root, "attention", word_of);
  words.techniques = entries_of(root, "technique", word_of);
  words.caveats = entries_of(root, "caveat", word_of);
  words.models = entries_of(root, "model", model_of);
  words.habits = entries_of(root, "habit", habit_of);
  TomlTable sizes = root.section("sizes");
  for (const std::string& name : sizes.keys()) {
    TomlTable table = sizes.section(name);
    const auto size = [&](const char* key) { return require<std::int64_t>(table, key, {.min = 1, .max = 1 << 24}); };
    words.sizes[folded(name)] = {size("layers"), size("hidden"), size("heads")};
    table.finish();
  }
  sizes.finish();
  for (const auto& [section, of_columns] : {std::pair{"plain", &words.plain}, {"columns", &words.columns}}) {
    TomlTable lists = root.section(section);
    for (const std::string& column : lists.keys()) (*of_columns)[column] = folded_list(lists, column.c_str());
    lists.finish();
  }
  words.labels = require<Strings>(root, "labels");
  root.finish();
  return words;
}

}  // namespace stretto::validate
