#include "validate/published_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "sim/accelerator/numbers.hpp"

namespace stretto::validate {
namespace {

// Networks of a node, in Gb/s.
constexpr double kSlowest = 1e-3, kFastest = 1e6;

}  // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string PublishedCells::text(Column column) const {
  if (at_[column] == kColumns) return "";
  const std::string_view cell = row_.text(at_[column]);
  return words_.is_nothing(cell) ? "" : std::string(cell);
}

std::int64_t PublishedCells::count(Column column) const { return text(column).empty() ? 0 : count_in(at_[column]); }

std::int64_t PublishedCells::count_in(std::size_t cell) const {
  constexpr std::int64_t kMost = 1 << 24;
  const std::int64_t count = row_.count(cell);
  if (count > kMost) throw row_.error(cell, "a number up to 2^24");
  return count;
}

bool PublishedCells::is_none(std::string_view cell, const ScenarioKey& key) {
  const std::string word = lower(std::string(cell));
  return stretto::value_of(key, {}).is_number() && (word == "none" || word == "no");
}

std::string PublishedCells::value_of_cell(std::size_t column, const ScenarioKey& key) const {
  const KeyValue by_default = stretto::value_of(key, {});
  const std::string cell(row_.text(column));
  if (by_default.is_number_integer())
    return fmt::format("{}", key.bounds.min <= 0 && cell == "0" ? 0 : count_in(column));
  if (by_default.is_number()) return fmt::format("{}", row_.number(column));
  if (!by_default.is_boolean()) return sim::toml_string(cell);
  const std::string word = lower(cell);
  if (word == "true" || word == "on" || word == "yes" || word == "1") return "true";
  if (word == "false" || word == "off" || word == "no" || word == "0") return "false";
  throw row_.error(column, "true or false");
}

double PublishedCells::rate_of_nodes() const {
  const std::string caveat = text(kCaveat);
  constexpr std::string_view kBefore = "inter-node ";
  const std::size_t at = lower(caveat).find(kBefore);
  if (at == std::string::npos) return 0;
  const std::string_view after = std::string_view(caveat).substr(at + kBefore.size());
  const std::size_t blank = std::min(after.find(' '), after.size());
  const std::string_view number = after.substr(0, blank), rest = after.substr(std::min(blank + 1, after.size()));
  double unit = 0;  // in Gb/s; the case of b distinguishes bits from bytes
  for (const auto& [name, Gbps] : {std::pair{"Gb/s", 1.0}, {"Gbps", 1.0}, {"Gbit/s", 1.0}, {"GB/s", 8.0}})
    if (rest.starts_with(name)) unit = Gbps;
  const bool is_number = !number.empty() && std::string_view("0123456789+-.").find(number[0]) != std::string_view::npos;
  if (unit == 0 && !is_number) return 0;  // "inter-node network not stated"
  double rate = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), rate);
  rate *= unit;
  if (problem != std::errc() || end != number.data() + number.size() || !(rate >= kSlowest && rate <= kFastest))
    throw row_.error(at_[kCaveat],
                     fmt::format("\"inter-node\", a rate from {:g} to {:g} and Gb/s or GB/s", kSlowest, kFastest));
  return rate;
}

std::set<std::string> PublishedCells::taken(Words& left, const std::vector<PublishedWords::Word>& entries) const {
  std::set<std::string> means;
  for (const PublishedWords::Word& entry : entries) {
    if (!left.take_all(entry.words)) continue;
    if (!entry.refused.empty()) throw NotModelled{fmt::format("{} (\"{}\")", entry.refused, left.cell())};
    if (!entry.means.empty()) means.insert(entry.means);
  }
  return means;
}

void PublishedCells::finish(Words& left, const std::string& column, bool has_labels) const {
  if (const auto plain = words_.plain.find(column); plain != words_.plain.end()) left.take_all(plain->second);
  for (const std::string& piece : left.rest())
    if (!has_labels || !is_label(piece))
      throw NotModelled{fmt::format("{}: \"{}\" of \"{}\" is not known", column, piece, left.cell())};
}

std::set<std::string> PublishedCells::all_of(Column column, const std::vector<PublishedWords::Word>& entries) const {
  Words left(text(column));
  std::set<std::string> means = taken(left, entries);
  finish_words(left, column, entries);
  return means;
}

void PublishedCells::finish_words(Words& left, Column column, const std::vector<PublishedWords::Word>& entries) const {
  if (const auto plain = words_.plain.find(kNames[column]); plain != words_.plain.end()) left.take_all(plain->second);
  const bool has_numbers = column == kTask || column == kAttention;
  for (const std::string& piece : left.rest())
    if (!has_numbers || !is_label(piece)) throw row_.error(at_[column], expected_of(entries));
}

std::string PublishedCells::expected_of(const std::vector<PublishedWords::Word>& entries) {
  std::string text;
  for (const PublishedWords::Word& entry : entries)
    if (!entry.words.empty()) text += (text.empty() ? "one of " : ", ") + entry.words.back();
  return text + " (scenarios/published.toml has all words)";
}

}  // namespace stretto::validate
