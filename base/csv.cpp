#include "base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/charconv.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"

namespace stretto {
namespace {

// Bounds of every number in a table: no table here has reason to hold less or more (microseconds in thirty years, bytes
// on a thousand disks). Every whole number up to 1e15 is a double.
constexpr double kLeast = 1e-9, kMost = 1e15;

// A line is cut into cells as a whole, and the first one once for each column that is asked for.
constexpr std::size_t kLongestLine = 1 << 20;

std::string place(const std::string& name, int line) { return name + ":" + std::to_string(line) + ": "; }

// Removes the next line from the text and returns the line without its line break.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view trimmed(std::string_view cell) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  if (cell.empty() || (!is_blank(cell.front()) && !is_blank(cell.back()))) return cell;
  const std::size_t first = std::min(cell.find_first_not_of(" \t"), cell.size());
  cell.remove_prefix(first);
  return cell.substr(0, cell.find_last_not_of(" \t") + 1);
}

// Splits a line into cells. `unquoted` owns the text of cells that held doubled quotes.
void split(std::string_view line, std::vector<std::string_view>& cells, std::deque<std::string>& unquoted) {
  cells.clear();
  unquoted.clear();
  for (std::size_t begin = 0; begin <= line.size();) {
    if (begin < line.size() && line[begin] == '"') {
      std::string& cell = unquoted.emplace_back();
      std::size_t at = begin + 1;
      for (; at < line.size(); ++at) {
        if (line[at] == '"' && (at + 1 == line.size() || line[at + 1] != '"')) break;
        at += line[at] == '"';
        cell += line[at];
      }
      cells.push_back(cell);
      begin = std::min(line.size(), line.find(',', at)) + 1;
      continue;
    }
    const std::size_t end = std::min(line.size(), line.find(',', begin));
    cells.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
}

}  // namespace

Error CsvRow::error(std::size_t column, const std::string& expected) const {
  return input_error(place(name_, line_) + columns_[column] + ": expected " + expected + ", got \"" +
                     std::string(cells_[column].substr(0, 60)) + "\"");
}

double CsvRow::number(std::size_t column) const {
  const std::string_view cell = cells_[column];
  std::int64_t whole = 0;
  constexpr std::size_t kMostDigits = 15;  // every number of that many digits is a double, and at most kMost
  const bool is_whole =
      !cell.empty() && cell.size() <= kMostDigits && std::all_of(cell.begin(), cell.end(), [&](char digit) {
        whole = 10 * whole + (digit - '0');
        return digit >= '0' && digit <= '9';
      });
  return is_whole && whole > 0 ? static_cast<double>(whole) : number(column, kLeast, kMost);
}

double CsvRow::number(std::size_t column, double least, double most) const {
  const std::string_view cell = cells_[column];
  double value = 0;
  const auto [end, problem] = from_chars(cell.data(), cell.data() + cell.size(), value);
  if (problem != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) || (value <= 0 && least > 0))
    throw error(column, least > 0 ? "a number above 0" : fmt::format("a number from {:g} to {:g}", least, most));
  if (value < least || value > most) throw error(column, fmt::format("a number from {:g} to {:g}", least, most));
  return value;
}

std::int64_t CsvRow::count(std::size_t column) const {
  const double value = number(column);
  if (value != std::floor(value)) throw error(column, "a whole number above 0");
  return static_cast<std::int64_t>(value);
}

std::vector<std::string> csv_columns(std::string_view text) {
  text = without_mark(text);
  std::vector<std::string_view> cells;
  std::deque<std::string> unquoted;
  const std::string_view first = take_line(text);
  if (first.size() > kLongestLine) return {};  // read_csv() refuses it
  split(first, cells, unquoted);
  return {cells.begin(), cells.end()};
}

bool has_csv_column(std::string_view text, std::string_view column) {
  const std::vector<std::string> columns = csv_columns(text);
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

void read_csv(std::string_view text, const std::string& name, const std::vector<std::string>& columns,
              const std::function<void(const CsvRow&)>& use, const std::function<void(int, const Error&)>& skip) {
  text = require_text(text, name);
  std::vector<std::string_view> cells, wanted(columns.size());
  std::deque<std::string> unquoted;
  const auto next_line = [&](int line) {
    const std::string_view row = take_line(text);
    if (row.size() > kLongestLine)
      throw input_error(place(name, line) + "expected a line of at most 1 MiB, got a longer one");
    return row;
  };
  split(next_line(1), cells, unquoted);
  const std::vector<std::string> header(cells.begin(), cells.end());
  std::vector<std::size_t> index;
  for (const std::string& column : columns) {
    const auto found = std::find(header.begin(), header.end(), column);
    if (found == header.end()) {
      const std::string nearest = nearest_spelling(column, header);
      const bool has_semicolons = header.size() == 1 && header[0].find(';') != std::string::npos;
      throw input_error(place(name, 1) + "expected a column \"" + column + "\", got none" +
                        (has_semicolons    ? "; columns are separated by commas, not by semicolons"
                         : nearest.empty() ? ""
                                           : "; did you mean \"" + nearest + "\"?"));
    }
    index.push_back(static_cast<std::size_t>(found - header.begin()));
  }
  for (int line = 2; !text.empty(); ++line) {
    const std::string_view row = next_line(line);
    if (row.empty()) continue;
    try {
      split(row, cells, unquoted);
      while (cells.size() > header.size() && cells.back().empty()) cells.pop_back();
      if (std::all_of(cells.begin(), cells.end(), [](std::string_view cell) { return cell.empty(); })) continue;
      if (cells.size() != header.size())
        throw input_error(place(name, line) + "expected " + std::to_string(header.size()) + " cells, got " +
                          std::to_string(cells.size()));
      for (std::size_t c = 0; c < columns.size(); ++c) wanted[c] = cells[index[c]];
      use(CsvRow(name, line, columns, wanted));
    } catch (const Error& error) {
      if (!skip || error.kind() != ErrorKind::input) throw;
      skip(line, error);
    }
  }
}

}  // namespace stretto
