#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "calibrate/import/nccl_run.hpp"

namespace stretto::calibrate {
namespace {

using Words = std::vector<std::string_view>;

Words words_of(std::string_view line) {
  // mpirun --tag-output puts "[1,0]<stdout>:" before a line, and a number may follow without a blank.
  if (const std::size_t tag = line.find(">:"); tag != std::string_view::npos) line.remove_prefix(tag + 2);
  Words words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r#");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.size(), line.find_first_of(" \t\r"));
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::optional<double> number(std::string_view word) {
  double value = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (problem != std::errc() || end != word.data() + word.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}
// Returns a bandwidth as printed: "75.53", "1.2e+03".
PrintedNumber printed(std::string_view word) {
  const std::optional<double> value = number(word);
  if (!value) return {};
  const std::size_t exponent = std::min(word.size(), word.find_first_of("eE"));
  const std::string_view digits = word.substr(0, exponent);
  const std::size_t point = std::min(digits.size(), digits.find('.'));
  const double decimals = point == digits.size() ? 0 : double(digits.size() - point - 1);
  std::string_view power = word.substr(std::min(word.size(), exponent + 1));
  if (power.starts_with('+')) power.remove_prefix(1);
  return {*value, std::pow(10, number(power).value_or(0) - decimals)};
}
bool is_count(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

// Columns after the root: "time", "algbw", "busbw" and "wrong", out of place, then in place; a build or an option may
// add some.
class Columns {
 public:
  // Reads the header of rows: its words from the first "time" on.
  void take(const Words& words, std::size_t first) {
    names_.assign(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    has_date_ = !names_.empty() && names_.back() == "timestamp";
    if (has_date_) names_.pop_back();
    const auto second = std::find(names_.begin() + 1, names_.end(), "time");
    group_ = static_cast<std::size_t>(second - names_.begin());
  }

  // Returns the row in `words`, which begin with size, count and type; nullopt when the row is cut off.
  std::optional<NcclRow> row(const Words& words) const {
    NcclRow row;
    row.bytes = number(words[0]).value_or(0);
    row.type = words[2];
    const std::size_t values = words.size() - 3 - std::min(words.size() - 3, has_date_ ? std::size_t{2} : 0);
    // Operation and root may be missing, and a program may leave the first group empty.
    const auto fits = [&](std::size_t columns) { return values >= columns && values <= columns + 2; };
    const bool is_whole = fits(names_.size()),
               has_second = !is_whole && group_ < names_.size() && fits(names_.size() - group_);
    if (!is_whole && !has_second) return std::nullopt;
    const std::size_t columns = is_whole ? names_.size() : names_.size() - group_;
    const std::size_t begin = 3 + values - columns;
    // One of the two alone: a root is a number.
    for (std::size_t w = 3; w < begin; ++w) (number(words[w]) ? row.root : row.redop) = words[w];
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string_view name = names_[is_whole ? c : group_ + c];
      const double value = number(words[begin + c]).value_or(0);  // "N/A"
      const bool is_first = is_whole && c < group_;
      if (name == "time") (is_first ? row.out_of_place_us : row.in_place_us) = value;
      if (name == "algbw" && row.algorithm_GBps.value == 0) row.algorithm_GBps = printed(words[begin + c]);
      if (name == "busbw" && row.bus_GBps.value == 0) row.bus_GBps = printed(words[begin + c]);
      if (name == "wrong") {
        row.wrong += value;
        (is_first ? row.is_checked_out_of_place : row.is_checked_in_place) = is_count(words[begin + c]);
      }
    }
    return row;
  }

 private:
  std::vector<std::string> names_ = {"time", "algbw", "busbw", "wrong", "time", "algbw", "busbw", "wrong"};
  std::size_t group_ = 4;  // columns before the second time
  bool has_date_ = false;  // a row ends in a date and a time of day
};

// Reads lines "Rank 0 Group 0 Pid 42 on HOST device 0 [0000:19:00] NAME", before 2.13 without the group.
class Ranks {
 public:
  void clear() { group_.reset(); }
  // Returns whether the words are such a line.
  bool take(const Words& words, NcclRun& run) {
    const auto rank = std::find(words.begin(), words.end(), "Rank"), on = std::find(rank, words.end(), "on");
    const auto device = std::find(on, words.end(), "device");
    if (words.end() - rank < 2 || !is_count(rank[1]) || words.end() - device < 2 || device - on != 2) return false;
    const auto group = std::find(rank, on, "Group");
    const std::string_view mine = on - group < 2 ? "0" : group[1];
    if (!group_) group_ = mine;
    if (mine != *group_) {
      run.has_other_groups = true;
      return true;
    }
    ++run.gpus;
    if (const auto id = number(rank[1]); id && *id < 1 << 20)
      run.last_rank = std::max(run.last_rank, static_cast<std::int64_t>(*id));
    run.hosts.insert(std::string(on[1]));
    if (!run.device.empty()) return true;
    for (auto word = device + 2; word < words.end(); ++word)
      if (!word->starts_with('[') && !word->ends_with(']'))
        run.device += (run.device.empty() ? "" : " ") + std::string(*word);
    return true;
  }

 private:
  std::optional<std::string> group_;
};

}  // namespace

Measurements read_nccl_text(std::string_view text, const std::string& name, const ImportFile& said) {
  NcclPoints points(name, said);
  NcclRun run;
  Ranks ranks;
  Columns columns;
  int cut = 0;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.size(), text.find('\n'));
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (const std::string op = op_of_program(whole); !op.empty()) run.op = op;
    const Words words = words_of(whole);
    const auto is_next = [&](const char* first, const char* second) {
      const auto found = std::find(words.begin(), words.end(), first);
      return words.end() - found >= 2 && found[1] == second;
    };
    if (is_next("Using", "devices")) {
      NcclRun next;
      next.op = std::move(run.op);
      next.headers = run.headers + 1;
      run = std::move(next);
      ranks.clear();
      columns = {};
      continue;
    }
    if (ranks.take(words, run)) continue;
    if (std::find(words.begin(), words.end(), "busbw") != words.end()) {
      if (std::find(words.begin(), words.end(), "cputime") != words.end())
        throw input_error(name + ":" + std::to_string(line) +
                          ": expected the time of the GPU, got that of the processor (-C 1)");
      ++run.headers;
      const auto time = std::find(words.begin(), words.end(), "time");
      if (time != words.end()) columns.take(words, static_cast<std::size_t>(time - words.begin()));
      continue;
    }
    for (std::size_t w = 0; w + 3 < words.size(); ++w) {
      const unsigned char letter = static_cast<unsigned char>(words[w + 2].front());
      if (!is_count(words[w]) || !is_count(words[w + 1]) || letter < 'a' || letter > 'z') continue;
      const std::optional<NcclRow> row = columns.row({words.begin() + static_cast<std::ptrdiff_t>(w), words.end()});
      if (row)
        points.add(run, *row, line);
      else
        ++cut;
      break;
    }
  }
  Measurements found = points.take();
  if (cut > 0) found.notes.push_back("rows not used: " + std::to_string(cut) + " that are not whole");
  return found;
}

}  // namespace stretto::calibrate
