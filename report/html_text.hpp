#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "report/table.hpp"

namespace stretto {

// Text as HTML text or as an attribute in double quotes. Control characters become U+FFFD.
std::string html_escaped(std::string_view text);
// JSON that can stand in a <script> element: no "<", ASCII only. Numbers that are none are null.
std::string script_json(const nlohmann::json& value);

// A <table> in an element that scrolls where the page is narrower; numbers right-aligned as on a terminal.
std::string html_table(const Table& table);

// The unit that the values of one chart are shown in, chosen by the largest of them.
struct Unit {
  double per_unit = 1;  // values are divided by it
  std::string name;
  int decimals = 1;

  std::string number(double value) const;  // "12.3"; "–" for what is no number
  std::string text(double value) const;    // "12.3 ms"
};
Unit time_unit(double largest_ms);     // of values in milliseconds
Unit byte_unit(double largest_bytes);  // of values in bytes: powers of 1024

}  // namespace stretto
