#include "interchange/shell_filters.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "interchange/shell_syntax.hpp"
#include "interchange/yaml.hpp"

namespace stretto::shell {
namespace {

using Json = nlohmann::json;

// Returns the characters of a set of tr: "a-z", "[:upper:]", "\\n".
std::string characters_of(std::string_view set) {
  std::string all;
  const auto add = [&all](char from, char to) {
    for (int c = from; c <= to; ++c) all += static_cast<char>(c);
  };
  for (const auto& [name, from, to] :
       {std::tuple{"[:upper:]", 'A', 'Z'}, {"[:lower:]", 'a', 'z'}, {"[:digit:]", '0', '9'}})
    if (set == name) {
      add(from, to);
      return all;
    }
  if (set == "[:space:]") return " \t\n\r";
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (set[i] == '\\' && i + 1 < set.size()) {
      const char c = set[++i];
      all += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    } else if (i + 2 < set.size() && set[i + 1] == '-' && set[i + 2] > set[i]) {
      add(set[i], set[i + 2]);
      i += 2;
    } else {
      all += set[i];
    }
  }
  return all;
}

std::optional<std::string> translated(const std::vector<std::string>& words, const std::string& text) {
  bool removes = false, squeezes = false;
  std::vector<std::string> sets;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-d")
      removes = true;
    else if (words[i] == "-s")
      squeezes = true;
    else if (words[i].size() > 1 && words[i].starts_with('-'))
      return std::nullopt;
    else
      sets.push_back(characters_of(words[i]));
  }
  if (sets.empty() || sets.size() > 2 || (removes ? sets.size() != 1 : !squeezes && sets.size() != 2))
    return std::nullopt;
  std::string made;
  for (char c : text) {
    const std::size_t at = sets[0].find(c);
    if (at != std::string::npos && removes) continue;
    if (at != std::string::npos && sets.size() == 2 && !sets[1].empty()) c = sets[1][std::min(at, sets[1].size() - 1)];
    if (squeezes && !made.empty() && made.back() == c && sets.back().find(c) != std::string::npos) continue;
    made += c;
  }
  return made;
}

// Returns the path after ".", "A.\"b c\".d", up to a blank or the end.
std::vector<std::string> path_of(std::string_view text) {
  std::vector<std::string> path;
  while (text.starts_with('.')) {
    text.remove_prefix(1);
    const bool is_quoted = text.starts_with('"');
    if (is_quoted) text.remove_prefix(1);
    const std::size_t end = std::min(is_quoted ? text.find('"') : text.find_first_of(". |)"), text.size());
    path.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + (is_quoted ? 1 : 0), text.size()));
  }
  return path;
}

std::string text_of_scalar(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Returns the text that stands in quotes between the key and the value: .key + "=" + .value.
std::string text_between(const std::string& filter) {
  std::size_t at = filter.find(".key");
  at = at == std::string::npos ? at : filter.find('"', at);
  const std::size_t end = at == std::string::npos ? at : filter.find('"', at + 1);
  return end == std::string::npos ? " " : filter.substr(at + 1, end - at - 1);
}

}  // namespace

std::optional<std::string> filtered_text(const std::vector<std::string>& words, const std::string& text,
                                         Budget& budget) {
  if (words.empty()) return std::nullopt;
  constexpr std::size_t kOfSet = 256;
  budget.look(text.size() * (words[0] == "tr" ? kOfSet / 16 : 1));
  budget.keep(text.size());
  if (words[0] == "tr") return translated(words, text);
  if (words[0] == "cat" && words.size() == 1) return text;
  if (words[0] != "xargs" || words.size() != 1) return std::nullopt;
  std::string made;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t\n", at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    made += (made.empty() ? "" : " ") + text.substr(at, end - at);
    at = end;
  }
  return made + "\n";
}

std::string substituted_variables(const std::string& text, const State& state) {
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find('$', at), text.size());
    made += text.substr(at, found - at);
    if (found == text.size()) break;
    const bool is_braced = found + 1 < text.size() && text[found + 1] == '{';
    const std::size_t begin = found + (is_braced ? 2 : 1);
    std::size_t end = begin;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    const std::string name = text.substr(begin, end - begin);
    if (!is_name(name) || (is_braced && (end >= text.size() || text[end] != '}'))) {
      made += '$';
      at = found + 1;
      continue;
    }
    const Variable* variable = state.find(name);
    made += variable == nullptr ? unknown(name) : variable->elements.empty() ? "" : variable->elements.front();
    at = end + (is_braced ? 1 : 0);
  }
  return made;
}

std::optional<std::string> yq_output(const std::vector<std::string>& words,
                                     const std::function<std::optional<std::string>(const std::string&)>& read,
                                     Budget& budget) {
  std::vector<std::string> given;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (!words[i].starts_with('-')) given.push_back(words[i]);
  if (given.size() != 2) return std::nullopt;
  const auto text = read(given[1]);
  if (!text) return std::nullopt;
  budget.look(text->size());
  Json root;
  try {
    root = parse_yaml(*text, given[1]).root;
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::string& filter = given[0];
  // The path stands first, or after a filter that takes comments away: "... comments=\"\" | .ARGS".
  std::size_t begin = 0;
  if (const std::size_t bar = filter.find("| ."); filter.starts_with("...") && bar != std::string::npos)
    begin = bar + 2;
  const std::vector<std::string> path = path_of(std::string_view(filter).substr(begin));
  if (path.empty()) return std::nullopt;
  const Json* node = &root;
  for (const std::string& key : path) {
    if (!node->is_object() || !node->contains(key)) return "null";
    node = &(*node)[key];
  }
  if (filter.find("to_entries") == std::string::npos) {
    if (filter.find('|', begin) != std::string::npos || node->is_structured()) return std::nullopt;
    return text_of_scalar(*node);
  }
  if (!node->is_object()) return std::nullopt;
  const bool drops_false = filter.find("!= \"false\"") != std::string::npos,
             empties_true = filter.find("== \"true\"") != std::string::npos;
  const std::string between = text_between(filter);
  std::string made;
  for (const auto& [key, value] : node->items()) {
    if (value.is_structured()) continue;
    std::string shown = text_of_scalar(value);
    if (drops_false && shown == "false") continue;
    if (empties_true && shown == "true") shown.clear();
    made += (made.empty() ? "" : "\n") + key + between + shown;
  }
  return made;
}

}  // namespace stretto::shell
