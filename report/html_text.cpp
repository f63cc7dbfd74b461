#include "report/html_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace stretto {

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
        escaped += control ? "\uFFFD" : std::string(1, c);
      }
    }
  }
  return escaped;
}

std::string script_json(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  // "<" occurs only in strings; it is escaped so that nothing can end the script element or open a comment in it.
  for (const char c : text) {
    if (c == '<')
      escaped += "\\u003c";
    else
      escaped += c;
  }
  return escaped;
}

std::string html_table(const Table& table) {
  const std::vector<bool> right = table.right_aligned();
  // Columns with long texts are broken into lines, other columns never are.
  constexpr std::size_t kLongText = 48;
  std::vector<bool> is_long(right.size(), false);
  for (const std::vector<std::string>& row : table.cells())
    for (std::size_t i = 0; i < row.size(); ++i) is_long[i] = is_long[i] || display_width(row[i]) > kLongText;
  const auto line = [&](const std::vector<std::string>& cells, const char* element, const char* attributes) {
    std::string html = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      html += fmt::format("<{0}{1}{2}>{3}</{0}>", element, attributes,
                          right[i]     ? " class=\"n\""
                          : is_long[i] ? " class=\"w\""
                                       : "",
                          html_escaped(cells[i]));
    return html + "</tr>\n";
  };
  std::string html =
      "<div class=\"table\"><table>\n<thead>" + line(table.headers(), "th", " scope=\"col\"") + "</thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.cells()) html += line(row, "td", "");
  return html + "</tbody></table></div>\n";
}

}  // namespace stretto
