#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace stretto {

// One row of a CSV table: the requested columns, in the requested order.
class CsvRow {
 public:
  CsvRow(const std::string& name, int line, const std::vector<std::string>& columns,
         const std::vector<std::string_view>& cells)
      : name_(name), line_(line), columns_(columns), cells_(cells) {}
  int line() const { return line_; }
  std::string_view text(std::size_t column) const { return cells_[column]; }
  // A number from 1e-9 to 1e15. Throws Error(input) with file, line and column.
  double number(std::size_t column) const;
  // Returns a number in [least, most]. Throws as number() does.
  double number(std::size_t column, double least, double most) const;
  // Returns a whole number from 1 to 1e15. Throws as number() does.
  std::int64_t count(std::size_t column) const;
  // Returns the error "file:line: column: expected …, got <the cell>".
  Error error(std::size_t column, const std::string& expected) const;

 private:
  const std::string& name_;
  int line_;
  const std::vector<std::string>& columns_;
  const std::vector<std::string_view>& cells_;
};

// Reads a table in UTF-8, with or without a byte order mark, whose first line names its columns. Cells may stand in
// double quotes, with "" for a quote; blanks around other cells and rows without text are ignored. Calls `use` for each
// row with the cells of `columns`. Throws Error(input) with file and line for a missing column (naming the nearest
// existing one), for text that is not UTF-8, and for a row with too few or too many cells. With `skip`, a row with a
// wrong number of cells and a row for which `use` throws Error(input) go to `skip` with their line instead.
void read_csv(std::string_view text, const std::string& name, const std::vector<std::string>& columns,
              const std::function<void(const CsvRow&)>& use,
              const std::function<void(int line, const Error&)>& skip = nullptr);

// Returns the columns that the first line names.
std::vector<std::string> csv_columns(std::string_view text);
// Returns whether the first line names the column.
bool has_csv_column(std::string_view text, std::string_view column);

}  // namespace stretto
