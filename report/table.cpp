#include "report/table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace stretto {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns whether a cell is a number: "-1.5", "1,024", "12.3%", "3.4 ms", "×8", "1e-5"; also "-" and "–", which stand
// for no value.
bool looks_numeric(std::string_view cell) {
  if (cell.empty() || cell == "-" || cell == "–") return true;
  for (const std::string_view sign : {"+", "-", "−", "±", "×", "~", "<", ">"})
    if (cell.starts_with(sign)) {
      cell.remove_prefix(sign.size());
      break;
    }
  if (std::count(cell.begin(), cell.end(), ' ') > 1) return false;  // words after the unit
  return !cell.empty() && (is_digit(cell[0]) || (cell[0] == '.' && cell.size() > 1 && is_digit(cell[1])));
}

void append_cell(std::string& line, std::string_view cell, std::size_t width, bool right) {
  const std::string padding(width - display_width(cell), ' ');
  line += right ? padding + std::string(cell) : std::string(cell) + padding;
}

void append_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + '\n';
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  assert(cells.size() <= headers_.size());
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::vector<bool> Table::right_aligned() const {
  std::vector<bool> right(headers_.size(), !rows_.empty());
  for (std::size_t column = 0; column < headers_.size(); ++column) {
    bool filled = false;
    for (const auto& row : rows_) {
      filled = filled || !row[column].empty();
      if (!looks_numeric(row[column])) right[column] = false;
    }
    right[column] = right[column] && filled;
  }
  return right;
}

std::string Table::text() const {
  const std::vector<bool> right = right_aligned();
  std::vector<std::size_t> width(headers_.size());
  for (std::size_t column = 0; column < headers_.size(); ++column) {
    width[column] = display_width(headers_[column]);
    for (const auto& row : rows_) width[column] = std::max(width[column], display_width(row[column]));
  }
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      if (column > 0) line += "  ";
      append_cell(line, cells[column], width[column], right[column]);
    }
    return line;
  };
  std::string text, rule;
  append_line(text, line_of(headers_));
  for (std::size_t column = 0; column < width.size(); ++column)
    rule += (column > 0 ? "  " : "") + std::string(width[column], '-');
  append_line(text, rule);
  for (const auto& row : rows_) append_line(text, line_of(row));
  return text;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool continuation = (byte & 0xC0) == 0x80;
    // U+0300 to U+036F are encoded as CC 80 to CD AF.
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool combining = (byte == 0xCC && next >= 0x80) || (byte == 0xCD && next >= 0x80 && next <= 0xAF);
    if (!continuation && !combining) ++width;
  }
  return width;
}

std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent) {
  std::string lines, line;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && display_width(line) + 1 + display_width(word) > columns) {
      lines += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (at == 0 ? "" : " ") + word;
    }
    at = end + 1;
  }
  return lines + line + "\n";
}

}  // namespace stretto
