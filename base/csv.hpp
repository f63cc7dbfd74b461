#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace stretto {

// One row of a table in CSV, the columns that were asked for, in that order.
class CsvRow {
 public:
  CsvRow(const std::string& name, int line, const std::vector<std::string>& columns,
         const std::vector<std::string_view>& cells)
      : name_(name), line_(line), columns_(columns), cells_(cells) {}
  int line() const { return line_; }
  std::string_view text(std::size_t column) const { return cells_[column]; }
  // A number from 1e-9 to 1e15. Throws Error(input) with file, line and column.
  double number(std::size_t column) const;
  // The same, within narrower bounds.
  double number(std::size_t column, double least, double most) const;
  // A whole number from 1 to 1e15. Throws likewise.
  std::int64_t count(std::size_t column) const;
  // "file:line: column: expected …, got <the cell>".
  Error error(std::size_t column, const std::string& expected) const;

 private:
  const std::string& name_;
  int line_;
  const std::vector<std::string>& columns_;
  const std::vector<std::string_view>& cells_;
};

// Reads a table in UTF-8 (with or without a byte order mark) whose first line names its columns; cells may stand in
// double quotes, with "" for a quote, and blanks around others do not count, nor rows
// without any text. Calls `use` for each row with the cells of
// `columns`. Throws Error(input) naming file and line: a column that is missing, with the nearest that is there, text
// that is not UTF-8, or a row that has too few or too many cells. A row with such a number of cells, and one for which
// `use` throws Error(input), goes to `skip` with its line instead, where there is one.
void read_csv(std::string_view text, const std::string& name, const std::vector<std::string>& columns,
              const std::function<void(const CsvRow&)>& use,
              const std::function<void(int line, const Error&)>& skip = nullptr);

// Whether the first line names that column.
bool has_csv_column(std::string_view text, std::string_view column);

}  // namespace stretto
