#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "report/table.hpp"

namespace stretto {

// A column of rows: its key in JSON with the value, and its heading in the printed table with the text. An empty key or
// heading leaves the column out of that form. Without `text` the printed cell is the value, which must be a string.
template <class Row>
struct Column {
  const char *key, *heading;
  std::function<nlohmann::json(const Row&)> value;
  std::function<std::string(const Row&)> text = nullptr;
};

// Rows that are both printed as a table and written as JSON, a list of objects.
class Sheet {
 public:
  template <class Row>
  Sheet(const std::vector<Row>& rows, const std::vector<Column<Row>>& columns) {
    std::vector<std::string> headings;
    for (const Column<Row>& column : columns)
      if (*column.heading != '\0') headings.emplace_back(column.heading);
    table_ = Table(std::move(headings));
    for (const Row& row : rows) {
      std::vector<std::string> cells;
      nlohmann::json object = nlohmann::json::object();
      for (const Column<Row>& column : columns) {
        if (*column.key != '\0') object[column.key] = column.value(row);
        if (*column.heading != '\0')
          cells.push_back(column.text ? column.text(row) : column.value(row).template get<std::string>());
      }
      table_.add_row(std::move(cells));
      json_.push_back(std::move(object));
    }
  }

  const Table& table() const { return table_; }
  const nlohmann::json& json() const { return json_; }

 private:
  Table table_{{}};
  nlohmann::json json_ = nlohmann::json::array();
};

}  // namespace stretto
