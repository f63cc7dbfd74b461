#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// A plain-text table: a header, a rule, rows; columns as wide as their widest cell, two spaces apart. A column whose
// filled cells are all numbers (a sign, digits, one word or "%" behind them) is right-aligned, others left-aligned. The
// same bytes on a terminal and in a file. A value type.
class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

  // Cells beyond the headers are a bug; missing ones are empty.
  void add_row(std::vector<std::string> cells);
  std::string text() const;  // ends with a newline
  std::size_t rows() const { return rows_.size(); }

  // For other forms of the same table.
  const std::vector<std::string>& headers() const { return headers_; }
  const std::vector<std::vector<std::string>>& cells() const { return rows_; }  // [row][column], as many as headers
  std::vector<bool> right_aligned() const;                                      // [column]

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns of a terminal that UTF-8 text takes: code points, combining accents counted as none. Wide (East Asian) glyphs
// count as one.
std::size_t display_width(std::string_view text);

}  // namespace stretto
