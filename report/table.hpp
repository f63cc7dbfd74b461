#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// A plain-text table: a header, a rule, rows; columns as wide as their widest cell, two spaces apart. A column whose
// filled cells are all numbers (a sign, digits, then at most one word or "%") is right-aligned, others left-aligned.
// Equal bytes on a terminal and in a file. A value type.
class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

  // Adds a row. More cells than headers are a bug; missing cells are empty.
  void add_row(std::vector<std::string> cells);
  std::string text() const;  // ends with a newline
  std::size_t rows() const { return rows_.size(); }

  // For other forms of the table.
  const std::vector<std::string>& headers() const { return headers_; }
  // [row][column], each row as long as the headers
  const std::vector<std::vector<std::string>>& cells() const { return rows_; }
  std::vector<bool> right_aligned() const;  // [column]

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

class Sheet;  // report/sheet.hpp

// Returns the terminal columns of UTF-8 text: code points, without combining accents. Wide (East Asian) glyphs count as
// one.
std::size_t display_width(std::string_view text);

// Returns the text in lines of at most `columns`, broken at blanks, the second and later ones after `indent` blanks. A
// word that is longer has a line of its own.
std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent);

}  // namespace stretto
