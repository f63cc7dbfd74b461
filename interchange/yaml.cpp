#include "interchange/yaml.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/budget.hpp"
#include "base/charconv.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;
constexpr int kMaxYamlDepth = 40;

struct Line {
  std::size_t indent = 0;
  std::string text;
  int number = 1;
};

// Returns where a comment begins: at a # after a blank, outside quotes.
std::size_t comment_in(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == '\\' && quote == '"')
        ++i;
      else if (text[i] == quote)
        quote = 0;
    } else if ((text[i] == '"' || text[i] == '\'') &&
               (i == 0 || std::string_view(" ,[{:").find(text[i - 1]) != std::string_view::npos)) {
      quote = text[i];
    } else if (text[i] == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) {
      return i;
    }
  }
  return text.size();
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}
std::string trimmed(std::string_view text) { return std::string(without_blanks(text)); }

Json scalar_of(std::string_view written) {
  // A tag or an anchor may precede the value.
  while (written.starts_with('!') || written.starts_with('&')) {
    const std::size_t blank = std::min(written.find(' '), written.size());
    written = without_blanks(written.substr(blank));
  }
  const std::string text(written);
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL" || text == "None")
    return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  std::string digits = text;
  std::erase(digits, '_');
  const char *begin = digits.data() + (digits[0] == '+' ? 1 : 0), *end = digits.data() + digits.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, whole); error == std::errc{} && stop == end) return whole;
  double real = 0;
  if (const auto [stop, error] = from_chars(begin, end, real);
      error == std::errc{} && stop == end && std::isfinite(real))
    return real;
  return text;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : name_(name), budget_(name) {
    budget_.look(text.size());
    split(text);
  }

  Yaml run() {
    if (!lines_.empty() && lines_[0].text[0] == '{') {  // all of it is a flow mapping, as JSON is
      ++at_;
      result_.root = value_of(lines_[0].text, 0, lines_[0]);
    } else if (!lines_.empty()) {
      result_.root = block(lines_[0].indent, "", 0);
    }
    if (at_ < lines_.size()) throw wrong(lines_[at_], "expected the indentation of what stands above");
    return std::move(result_);
  }

 private:
  Error wrong(const Line& line, const std::string& message) const {
    return input_error(name_ + ":" + std::to_string(line.number) + ": " + message + ", got " + in_quotes(line.text));
  }

  void split(std::string_view text) {
    int number = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view row = text.substr(at, end - at);
      at = end + 1;
      ++number;
      if (row.starts_with("---")) {
        if (!lines_.empty()) return;
        continue;
      }
      if (row.starts_with("...")) return;
      if (row.starts_with('%')) continue;  // a directive
      const std::size_t indent = std::min(row.find_first_not_of(' '), row.size());
      std::string plain = trimmed(row.substr(0, comment_in(row)));
      if (!plain.empty()) lines_.push_back({indent, plain, number});
    }
  }

  Json block(std::size_t indent, const std::string& path, int depth) {
    if (depth > kMaxYamlDepth) throw wrong(lines_[at_], "expected at most 40 blocks inside each other");
    const std::string& first = lines_[at_].text;
    return first == "-" || first.starts_with("- ") ? sequence(indent, path, depth) : mapping(indent, path, depth);
  }

  // A long key is repeated in the path of each that stands below it.
  std::string at_path(const std::string& path, const std::string& key, const Line& line) {
    budget_.at_line(line.number);
    budget_.add_row();
    budget_.keep(path.size() + key.size());
    return path + "." + key;
  }

  bool is_here(std::size_t indent) const { return at_ < lines_.size() && lines_[at_].indent == indent; }

  Json sequence(std::size_t indent, const std::string& path, int depth) {
    Json list = Json::array();
    while (is_here(indent) && (lines_[at_].text == "-" || lines_[at_].text.starts_with("- "))) {
      Line& line = lines_[at_];
      const std::string rest = trimmed(line.text.substr(1));
      const std::string here = at_path(path, std::to_string(list.size()), line);
      if (rest.empty()) {
        ++at_;
        list.push_back(at_ < lines_.size() && lines_[at_].indent > indent ? block(lines_[at_].indent, here, depth + 1)
                                                                          : Json());
      } else if (key_end(rest) != std::string::npos && rest[0] != '{' && rest[0] != '[') {
        // "- key: value" begins a mapping that continues on the next lines, two columns in.
        line.indent = indent + line.text.find(rest, 1);
        line.text = rest;
        list.push_back(mapping(line.indent, here, depth + 1));
      } else {
        ++at_;
        list.push_back(value_of(rest, indent, line));
      }
    }
    return list;
  }

  // Returns the index of the colon after a key; npos where there is none.
  static std::size_t key_end(const std::string& text) {
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (quote != 0) {
        if (text[i] == quote) quote = 0;
      } else if ((text[i] == '"' || text[i] == '\'') && i == 0) {
        quote = text[i];
      } else if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\t')) {
        return i;
      }
    }
    return std::string::npos;
  }

  Json mapping(std::size_t indent, const std::string& path, int depth) {
    if (depth > kMaxYamlDepth) throw wrong(lines_[at_], "expected at most 40 blocks inside each other");
    Json map = Json::object();
    while (is_here(indent)) {
      const Line line = lines_[at_];
      const std::size_t colon = key_end(line.text);
      if (colon == std::string::npos) throw wrong(line, "expected \"key: value\"");
      const Json key_json = scalar_of(trimmed(line.text.substr(0, colon)));
      const std::string key = key_json.is_string() ? key_json.get<std::string>() : trimmed(line.text.substr(0, colon));
      const std::string rest = trimmed(line.text.substr(colon + 1));
      const std::string here = path.empty() ? key : at_path(path, key, line);
      result_.lines[here] = line.number;
      ++at_;
      const bool is_deeper =
          at_ < lines_.size() &&
          (lines_[at_].indent > indent ||
           (lines_[at_].indent == indent && (lines_[at_].text == "-" || lines_[at_].text.starts_with("- "))));
      const bool is_mark = rest.empty() || ((rest[0] == '&' || rest[0] == '!') && rest.find(' ') == std::string::npos);
      const auto is_scalar = [&](const std::string& text) {
        return key_end(text) == std::string::npos && text != "-" && !text.starts_with("- ");
      };
      if (rest.empty() && is_deeper && is_scalar(lines_[at_].text)) {  // a value on the line below its key
        ++at_;
        map[key] = value_of(lines_[at_ - 1].text, indent, line);
      } else if (is_mark && is_deeper)
        map[key] = block(lines_[at_].indent, here, depth + 1);
      else
        map[key] = is_mark ? Json() : value_of(rest, indent, line);
    }
    return map;
  }

  // Reads a scalar, a flow collection, or a block text.
  Json value_of(std::string text, std::size_t indent, const Line& line) {
    if (text[0] == '|' || text[0] == '>') {
      std::string body;
      while (at_ < lines_.size() && lines_[at_].indent > indent)
        body += lines_[at_++].text + (text[0] == '|' ? "\n" : " ");
      return body;
    }
    if (text[0] == '[' || text[0] == '{') {
      for (int open = brackets_in(text); open > 0 && at_ < lines_.size(); ++at_) {
        open += brackets_in(lines_[at_].text);
        text += " " + lines_[at_].text;
      }
      std::size_t at = 0;
      std::optional<Json> made = flow(text, at, 0);
      if (!made || at < text.size()) throw wrong(line, "expected the end of what the bracket begins");
      return *std::move(made);
    }
    // A plain scalar may continue on the next lines.
    const bool is_quoted = text[0] == '"' || text[0] == '\'';
    while (at_ < lines_.size() && lines_[at_].indent > indent &&
           (!is_quoted || text.size() < 2 || text.back() != text[0]) &&
           (is_quoted || key_end(lines_[at_].text) == std::string::npos))
      text += " " + lines_[at_++].text;
    return scalar_of(text);
  }

  // Returns how many brackets the text opens more than it closes, quoted ones and those of ${…} included.
  static int brackets_in(const std::string& text) {
    int inside = 0;
    for (const char c : text) inside += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    return inside;
  }

  // Reads the flow collection that begins at text[at] and moves `at` to what follows it. Every turn of the loop moves
  // `at`, so that it ends. Nothing: the collection does not end, or ends with the other bracket.
  std::optional<Json> flow(const std::string& text, std::size_t& at, int depth) {
    if (depth > kMaxYamlDepth || at >= text.size()) return std::nullopt;
    const bool is_map = text[at] == '{';
    Json made = is_map ? Json::object() : Json::array();
    for (++at;;) {
      skip_blanks(text, at);
      if (at >= text.size() || text[at] == (is_map ? ']' : '}')) return std::nullopt;
      if (text[at] == ']' || text[at] == '}') {
        ++at;
        return made;
      }
      if (text[at] == ',') {
        ++at;
        continue;
      }
      budget_.add_row();
      std::string key;
      if (is_map) {
        const Json word = flow_scalar(text, at, ":,}");
        key = word.is_string() ? word.get<std::string>() : word.dump();
        skip_blanks(text, at);
        if (at >= text.size()) return std::nullopt;
        if (text[at] != ':') {  // a key without a value
          made[key] = nullptr;
          continue;
        }
        ++at;
        skip_blanks(text, at);
        if (at >= text.size()) return std::nullopt;
      }
      std::optional<Json> value;
      if (text[at] == '[' || text[at] == '{')
        value = flow(text, at, depth + 1);
      else
        value = flow_scalar(text, at, ",]}");
      if (!value) return std::nullopt;
      if (is_map)
        made[key] = *std::move(value);
      else
        made.push_back(*std::move(value));
    }
  }

  static void skip_blanks(const std::string& text, std::size_t& at) {
    at = std::min(text.find_first_not_of(" \t", at), text.size());
  }

  // Reads a scalar up to one of `ends` outside of quotes and of ${…}.
  static Json flow_scalar(const std::string& text, std::size_t& at, std::string_view ends) {
    const std::size_t begin = at;
    int inside = 0;  // depth of ${…}
    const char quote = text[at] == '"' || text[at] == '\'' ? text[at++] : '\0';
    if (quote != 0) {
      at = std::min(text.find(quote, at), text.size() - 1) + 1;
    } else {
      for (; at < text.size() && (inside > 0 || ends.find(text[at]) == std::string_view::npos); ++at)
        inside += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
    }
    return scalar_of(trimmed(text.substr(begin, at - begin)));
  }

  const std::string& name_;
  Budget budget_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;
  Yaml result_;
};

}  // namespace

Yaml parse_yaml(std::string_view text, const std::string& name) { return Parser(text, name).run(); }

}  // namespace stretto
