#include <algorithm>
#include <cmath>
#include <new>
#include <sstream>
#include <toml.hpp>

#include "base/charconv.hpp"
#include "base/printable.hpp"
#include "base/toml.hpp"
#include "base/toml_scan.hpp"
#include "base/utf8.hpp"

namespace stretto {
namespace {

// toml11 3.7 asks an array for its last or first table when a header adds to it ("a = []" before "[[a]]"), and not
// whether it has one.
struct AddsToEmptyArray : std::exception {};
template <class... Element>
struct CheckedArray : std::vector<Element...> {
  using Elements = std::vector<Element...>;
  using Elements::Elements;
  auto& front() { return checked(), Elements::front(); }
  auto& back() { return checked(), Elements::back(); }
  const auto& front() const { return checked(), Elements::front(); }
  const auto& back() const { return checked(), Elements::back(); }

 private:
  void checked() const {
    if (this->empty()) throw AddsToEmptyArray();
  }
};

using Value = ::toml::basic_value<::toml::discard_comments, std::map, CheckedArray>;

Value parsed(const std::string& text) {
  std::istringstream stream{text};
  return ::toml::parse<::toml::discard_comments, std::map, CheckedArray>(stream, "toml");
}

// Returns the line of the header that adds to an empty array. All longer beginnings of the text have it too.
int line_of_addition(const std::string& text) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n' || i + 1 == text.size()) ends.push_back(i + 1);
  const auto found = std::partition_point(ends.begin(), ends.end(), [&](std::size_t end) {
    try {
      parsed(text.substr(0, end));
    } catch (const AddsToEmptyArray&) {
      return false;
    } catch (const std::exception&) {
    }
    return true;
  });
  return static_cast<int>(found - ends.begin()) + 1;
}

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

// Returns the first sentence of what toml11 says of an error over several lines, without names of its functions.
std::string reason_of(std::string_view what, std::string_view line) {
  std::string_view said = what.substr(0, what.find('\n'));
  for (const std::string_view prefix : {"[error] ", "bad_", "toml::"}) {
    if (!said.starts_with(prefix)) continue;
    said.remove_prefix(prefix == "toml::" || prefix == "bad_" ? std::min(said.find(": "), said.size() - 2) + 2
                                                              : prefix.size());
  }
  while (!said.empty() && (said.back() == '.' || said.back() == ' ')) said.remove_suffix(1);
  // toml11 reads no further than where a value may end; the rest is then the place of its error.
  const std::size_t equals = line.find('=');
  std::string_view value = equals == line.npos ? std::string_view{} : line.substr(equals + 1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  for (const std::string_view word : {"true", "false"})
    if (value.size() >= word.size() &&
        std::equal(word.begin(), word.end(), value.begin(),
                   [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); }) &&
        !value.starts_with(word))
      return "boolean: expected '" + std::string(word) + "', saw '" +
             *std::mismatch(word.begin(), word.end(), value.begin()).second + "'";
  if (const std::size_t exists = said.find(" already exists"); exists != said.npos) {
    std::string key(said.substr(0, exists));
    const std::size_t first = key.find('"'), last = key.rfind('"');
    if (first != key.npos && last > first) key = key.substr(first + 1, last - first - 1);
    return "cannot redefine existing key '" + key + "'";
  }
  if (said.empty() || said.find("unknown value appeared") != said.npos ||
      said.find("none of the expected") != said.npos || said.find("value type") != said.npos)
    return "not a value (a string needs quotes, a boolean is true or false)";
  return std::string(said);
}

std::string_view line_of(std::string_view text, int line) {
  for (; line > 1; --line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

std::string without_underscores(std::string text) {
  std::erase(text, '_');
  if (text.starts_with('+')) text.erase(0, 1);
  return text;
}

class Converter {
 public:
  // `parsed` is the text that the parser sees, whose lines are those of `text`.
  Converter(std::string_view text, std::string_view parsed, const std::string& name) : text_(text), name_(name) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < parsed.size(); ++i)
      if (parsed[i] == '\n') starts_.push_back(i + 1);
  }

  TomlNode convert(const Value& value, int depth = 0) const {
    // The region is asked for the line because location() counts the lines of the whole file at every call.
    const auto* region = dynamic_cast<const ::toml::detail::region*>(::toml::detail::get_region(value));
    const int line = region ? line_at(static_cast<std::size_t>(region->first() - region->begin())) : 1;
    if (depth > kTomlMaxDepth)
      throw at_line(
          name_, line,
          "expected at most " + std::to_string(kTomlMaxDepth) + " tables and arrays inside each other, got more");
    switch (value.type()) {
      case ::toml::value_t::boolean:
        return {value.as_boolean(), line};
      case ::toml::value_t::integer:
        return {integer(region ? region->str() : std::to_string(value.as_integer()), line), line};
      case ::toml::value_t::floating:
        return {floating(region ? region->str() : "nan", line), line};
      case ::toml::value_t::string: {
        const std::string& string = value.as_string().str;
        if (string.find('\0') != std::string::npos) throw at_line(name_, line, "expected text, got a NUL character");
        // An escape may stand for half of a surrogate pair, which UTF-8 cannot hold.
        if (!is_toml_text(string)) throw syntax(line, "string: escape sequence is no Unicode scalar value");
        return {string, line};
      }
      case ::toml::value_t::array: {
        TomlNode::Array array;
        array.reserve(value.as_array().size());
        for (const Value& element : value.as_array()) array.push_back(convert(element, depth + 1));
        return {std::move(array), line};
      }
      case ::toml::value_t::table: {
        TomlNode::Table table;
        for (const auto& [key, element] : value.as_table())
          table.emplace_hint(table.end(), key, convert(element, depth + 1));
        return {std::move(table), line};
      }
      default:
        throw at_line(name_, line, "expected a boolean, number, string, array or table, got a date or time");
    }
  }

  Error syntax(int line, const std::string& reason) const {
    return at_line(name_, line, "expected valid TOML, got " + in_quotes(line_of(text_, line)) + ": " + reason);
  }

 private:
  int line_at(std::size_t offset) const {
    return static_cast<int>(std::upper_bound(starts_.begin(), starts_.end(), offset) - starts_.begin());
  }

  // Numbers are read again from their text because toml11 clamps a number that does not fit and does not refuse it.
  std::int64_t integer(const std::string& written, int line) const {
    std::string text = without_underscores(written);
    const char kind = text.size() > 2 && text[0] == '0' ? text[1] : ' ';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) text.erase(0, 2);
    std::int64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (problem == std::errc{} && end == text.data() + text.size()) return number;
    const char* noun = base == 16 ? "hexadecimal" : base == 8 ? "octal" : base == 2 ? "binary" : "decimal";
    throw syntax(line, std::string(noun) + " integer: '" + written + "' is not representable in 64 bits");
  }

  double floating(const std::string& written, int line) const {
    const std::string text = without_underscores(written);
    if (text.ends_with("nan") || text.ends_with("inf"))
      throw at_line(name_, line, "expected a finite number, got " + text.substr(text.size() - 3));
    double number = 0;
    const auto [end, problem] = from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc{} || end != text.data() + text.size() || !std::isfinite(number))
      throw syntax(line, "floating-point: '" + written + "' could not be interpreted as a value");
    return number;
  }

  std::string_view text_;
  const std::string& name_;
  std::vector<std::size_t> starts_;  // offsets of line starts
};

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
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const TomlScan scan = scan_toml(text);
  const Converter converter(text, scan.to_parse, name);
  if (const TomlFault& fault = scan.fault; fault.line > 0)
    throw fault.is_syntax ? converter.syntax(fault.line, fault.reason) : at_line(name, fault.line, fault.reason);
  Value root;
  try {
    root = parsed(scan.to_parse);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const AddsToEmptyArray&) {
    throw converter.syntax(line_of_addition(scan.to_parse), "cannot redefine an empty array as tables");
  } catch (const ::toml::exception& error) {
    const int line = std::max(1, static_cast<int>(error.location().line()));
    throw converter.syntax(line, printable(reason_of(error.what(), line_of(text, line))));
  } catch (const std::exception& error) {
    throw at_line(name, 1,
                  "expected valid TOML, got what its parser gives up on: " + printable(reason_of(error.what(), "")));
  }
  return converter.convert(root);
}

}  // namespace stretto
