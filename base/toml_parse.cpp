#include <algorithm>
#include <cmath>

#include "base/printable.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"

// toml++ 3.3 asserts that a table's name begins with a letter of a key and reports the error "[=]" a few lines later.
// With NDEBUG clang would read the assertion as a promise, so toml++ is compiled without NDEBUG and with an empty
// assertion.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 16
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace stretto {
namespace {

static_assert(kTomlMaxBrackets == TOML_MAX_NESTED_VALUES);

Error at_line(const std::string& name, int line, const std::string& message) {
  return input_error(name + ":" + std::to_string(line) + ": " + message);
}

void check_bytes(std::string_view text, const std::string& name) {
  if (text.size() > kTomlMaxBytes)
    throw at_line(name, 1,
                  "expected at most " + std::to_string(kTomlMaxBytes) + " bytes, got " + std::to_string(text.size()));
  int line = 1;
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\0') throw at_line(name, line, "expected text, got a NUL byte");
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) throw at_line(name, line, "expected UTF-8 text, got an invalid byte sequence");
    if (i - line_start > kTomlMaxLineBytes)
      throw at_line(name, line, "expected lines of at most " + std::to_string(kTomlMaxLineBytes) + " bytes, got more");
    if (text[i] == '\n') {
      ++line;
      line_start = i + 1;
    }
    i += length;
  }
}

// Returns what toml++ says of an error, without its first words.
std::string reason_of(std::string_view description) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  if (description.ends_with("could not determine value type"))
    return "not a value (a string needs quotes, a boolean is true or false)";
  if (description.find("maximum nested value depth") != description.npos)
    return "more than " + std::to_string(kTomlMaxBrackets) + " nested brackets";
  if (description.starts_with(kPrefix)) description.remove_prefix(kPrefix.size());
  return std::string(description);
}

std::string_view line_of(std::string_view text, int line) {
  for (; line > 1; --line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

// Tables and arrays inside each other that a file of kTomlMaxBrackets and kTomlMaxDots may have.
constexpr int kMaxDepth = kTomlMaxBrackets + kTomlMaxDots;

TomlNode convert(const ::toml::node& value, const std::string& name, int depth = 0) {
  const int line = std::max(1, static_cast<int>(value.source().begin.line));
  if (depth > kMaxDepth)
    throw at_line(name, line,
                  "expected at most " + std::to_string(kMaxDepth) + " tables and arrays inside each other, got more");
  switch (value.type()) {
    case ::toml::node_type::boolean:
      return {**value.as_boolean(), line};
    case ::toml::node_type::integer:
      return {**value.as_integer(), line};
    case ::toml::node_type::floating_point:
      if (const double number = **value.as_floating_point(); !std::isfinite(number))
        throw at_line(name, line, std::string("expected a finite number, got ") + (std::isnan(number) ? "nan" : "inf"));
      return {**value.as_floating_point(), line};
    case ::toml::node_type::string:
      if (value.as_string()->get().find('\0') != std::string::npos)
        throw at_line(name, line, "expected text, got a NUL character");
      return {value.as_string()->get(), line};
    case ::toml::node_type::array: {
      TomlNode::Array array;
      for (const ::toml::node& element : *value.as_array()) array.push_back(convert(element, name, depth + 1));
      return {std::move(array), line};
    }
    case ::toml::node_type::table: {
      TomlNode::Table table;
      for (const auto& [key, element] : *value.as_table()) table.emplace(key.str(), convert(element, name, depth + 1));
      return {std::move(table), line};
    }
    default:
      throw at_line(name, line, "expected a boolean, number, string, array or table, got a date or time");
  }
}

}  // namespace

bool is_toml_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = text[0] == '\0' ? 0 : utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

TomlNode parse_toml_nodes(std::string_view text, const std::string& name) {
  check_bytes(text, name);
  const ::toml::parse_result result = ::toml::parse(text);
  if (result) return convert(result.table(), name);
  const int line = static_cast<int>(result.error().source().begin.line);
  throw at_line(name, line,
                "expected valid TOML, got " + in_quotes(line_of(text, line)) + ": " +
                    printable(reason_of(result.error().description())));
}

}  // namespace stretto
