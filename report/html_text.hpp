#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "report/table.hpp"

namespace stretto {

// Escapes text for HTML text or an attribute in double quotes. Control characters become U+FFFD.
std::string html_escaped(std::string_view text);
// Returns JSON for a <script> element: no "<", ASCII only. Numbers that are not finite become null.
std::string script_json(const nlohmann::json& value);

// Returns a <table> in an element that scrolls where the page is narrower; numbers are right-aligned as on a terminal,
// columns of long texts are broken into lines.
std::string html_table(const Table& table);

}  // namespace stretto
