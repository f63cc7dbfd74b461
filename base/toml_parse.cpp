#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <toml.hpp>

#include "base/toml.hpp"
#include "base/utf8.hpp"

namespace stretto {
namespace {

using Value = ::toml::basic_value<::toml::discard_comments, std::map, std::vector>;

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

// Returns the index after the string that opens at `i`. A single-line string that is not closed ends with its line.
std::size_t skip_string(std::string_view text, std::size_t i) {
  const char quote = text[i];
  const std::string fence(3, quote);
  if (text.substr(i, 3) == fence) {
    for (i += 3; i < text.size(); ++i) {
      if (text[i] == '\\' && quote == '"') {
        ++i;
      } else if (text.substr(i, 3) == fence) {
        i += 3;
        // Up to two quotes may stand directly before the closing three.
        for (int extra = 0; extra < 2 && i < text.size() && text[i] == quote; ++extra) ++i;
        return i;
      }
    }
    return text.size();
  }
  for (++i; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == quote) return i + 1;
    if (text[i] == '\\' && quote == '"' && i + 1 < text.size() && text[i + 1] != '\n') ++i;
  }
  return i;
}

// toml11 recurses into brackets and dotted keys and shifts long binary integers out of range, which is undefined
// behaviour. This function counts brackets, dots and digits before toml11 sees the text.
void check_depth(std::string_view text, const std::string& name) {
  int line = 1, brackets = 0, dots = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const std::size_t end = std::min(skip_string(text, i), text.size());
      line += static_cast<int>(std::count(text.begin() + i, text.begin() + end, '\n'));
      i = end;
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '[' || c == '{') {
      if (++brackets > kTomlMaxBrackets)
        throw at_line(name, line,
                      "expected at most " + std::to_string(kTomlMaxBrackets) + " nested brackets, got more");
    } else if ((c == ']' || c == '}') && brackets > 0) {
      --brackets;
    }
    if (c == '.' && ++dots > kTomlMaxDots)
      throw at_line(name, line, "expected at most " + std::to_string(kTomlMaxDots) + " dots in a key, got more");
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots = 0;
    if (c == '\n') ++line;
    if (c == '0' && i + 1 < text.size() && text[i + 1] == 'b') {
      const std::size_t end = std::min(text.find_first_not_of("01_", i + 2), text.size());
      if (std::count_if(text.begin() + i + 2, text.begin() + end, [](char d) { return d != '_'; }) > 62)
        throw at_line(name, line, "expected a binary integer of at most 62 digits, got more");
    }
    ++i;
  }
}

// toml11 explains an error over several lines. Only the first sentence matters, without internal function names.
std::string first_sentence(const std::string& what) {
  std::string sentence = what.substr(0, what.find('\n'));
  if (sentence.rfind("[error] ", 0) == 0) sentence.erase(0, 8);
  for (const std::string_view prefix : {"toml::", "bad "}) {
    if (sentence.rfind(prefix, 0) != 0) continue;
    const std::size_t colon = sentence.find(": ", prefix == "toml::" ? 6 : 0);
    if (colon != std::string::npos) sentence.erase(0, colon + 2);
  }
  if (sentence.empty() || sentence == "unknown value appeared")
    return "not a value (a string needs quotes, a boolean is true or false)";
  std::replace_if(
      sentence.begin(), sentence.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  while (!sentence.empty() && (sentence.back() == '.' || sentence.back() == ' ')) sentence.pop_back();
  return sentence;
}

std::string_view line_of(std::string_view text, int line) {
  for (; line > 1; --line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

class Converter {
 public:
  Converter(std::string_view text, const std::string& name) : name_(name) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') starts_.push_back(i + 1);
  }

  TomlNode convert(const Value& value) const {
    // The region is asked for the line because location() counts the lines of the whole file at every call.
    const auto* region = dynamic_cast<const ::toml::detail::region*>(::toml::detail::get_region(value));
    const int line = region ? line_at(static_cast<std::size_t>(region->first() - region->begin())) : 1;
    switch (value.type()) {
      case ::toml::value_t::boolean:
        return {value.as_boolean(), line};
      case ::toml::value_t::integer:
        return {integer(region ? region->str() : std::to_string(value.as_integer()), line), line};
      case ::toml::value_t::floating:
        return {floating(region ? region->str() : "nan", line), line};
      case ::toml::value_t::string: {
        const std::string& text = value.as_string().str;
        if (text.find('\0') != std::string::npos) throw at_line(name_, line, "expected text, got a NUL character");
        return {text, line};
      }
      case ::toml::value_t::array: {
        TomlNode::Array array;
        for (const Value& element : value.as_array()) array.push_back(convert(element));
        return {std::move(array), line};
      }
      case ::toml::value_t::table: {
        TomlNode::Table table;
        for (const auto& [key, element] : value.as_table()) table.emplace(key, convert(element));
        return {std::move(table), line};
      }
      default:
        throw at_line(name_, line, "expected a boolean, number, string, array or table, got a date or time");
    }
  }

 private:
  int line_at(std::size_t offset) const {
    return static_cast<int>(std::upper_bound(starts_.begin(), starts_.end(), offset) - starts_.begin());
  }

  // Numbers are read again from their text because toml11 clamps a number that does not fit and does not refuse it.
  std::int64_t integer(std::string text, int line) const {
    const std::string written = text;
    std::erase(text, '_');
    if (text[0] == '+') text.erase(0, 1);
    int base = 10;
    if (text.size() > 2 && text[0] == '0' && !std::isdigit(static_cast<unsigned char>(text[1]))) {
      base = text[1] == 'x' ? 16 : text[1] == 'o' ? 8 : 2;
      text.erase(0, 2);
    }
    std::int64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (problem != std::errc{} || end != text.data() + text.size())
      throw at_line(name_, line, "expected an integer of at most 64 bits, got " + in_quotes(written));
    return number;
  }

  double floating(std::string text, int line) const {
    const std::string written = text;
    std::erase(text, '_');
    if (text[0] == '+') text.erase(0, 1);
    double number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc{} || end != text.data() + text.size() || !std::isfinite(number))
      throw at_line(name_, line, "expected a finite number that a double can hold, got " + in_quotes(written));
    return number;
  }

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
  check_depth(text, name);
  Value root;
  try {
    std::istringstream stream{std::string(text)};
    root = ::toml::parse<::toml::discard_comments, std::map, std::vector>(stream, "toml");
  } catch (const ::toml::exception& error) {
    const int line = static_cast<int>(error.location().line());
    throw at_line(name, line,
                  "expected valid TOML, got " + in_quotes(line_of(text, line)) + ": " + first_sentence(error.what()));
  } catch (const std::exception& error) {
    throw at_line(name, 1, "expected valid TOML, got what its parser gives up on: " + first_sentence(error.what()));
  }
  return Converter(text, name).convert(root);
}

}  // namespace stretto
