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

// A <table> in an element that scrolls where the page is narrower; numbers right-aligned as on a terminal, columns of
// long texts in lines.
std::string html_table(const Table& table);

}  // namespace stretto
