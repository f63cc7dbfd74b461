#include "interchange/shell_expand.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/error.hpp"
#include "interchange/shell_arithmetic.hpp"
#include "interchange/shell_syntax.hpp"

namespace stretto::shell {
namespace {

constexpr int kMaxExpansionDepth = 40;

// Splits unquoted expansions, keeps quoted ones.
class Fields {
 public:
  Fields(State& state, bool splits) : state_(state), splits_(splits) {}
  void quoted(std::string_view text) {
    is_open_ = true;
    append(text);
  }
  void unquoted(std::string_view text) {
    if (!splits_) return quoted(text);
    for (const char c : text) {
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        close();
      } else {
        is_open_ = true;
        append({&c, 1});
      }
    }
  }
  void several(const std::vector<std::string>& elements, bool is_quoted) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (i > 0 && splits_) close();
      if (i > 0 && !splits_) append(" ");
      if (is_quoted)
        quoted(elements[i]);
      else
        unquoted(elements[i]);
    }
  }
  std::vector<std::string> take() {
    close();
    return std::move(fields_);
  }

 private:
  void append(std::string_view text) {
    state_.budget.keep(text.size());
    field_ += text;
  }
  void close() {
    if (is_open_) {
      state_.budget.keep(sizeof(std::string));
      fields_.push_back(std::move(field_));
    }
    field_.clear();
    is_open_ = false;
  }
  State& state_;
  bool splits_, is_open_ = false;
  std::string field_;
  std::vector<std::string> fields_;
};

class Expander {
 public:
  Expander(State& state, bool splits, int depth) : state_(state), out_(state, splits), depth_(depth) {}

  std::vector<std::string> fields(std::string_view word) {
    if (depth_ > kMaxExpansionDepth)
      throw input_error(state_.budget.file() + ":" + std::to_string(state_.line) +
                        ": expected expansions inside each other at most 40 times, got more");
    part(word, false);
    return out_.take();
  }

 private:
  std::string nested(std::string_view word) {
    if (word.empty()) return "";
    Expander inner(state_, false, depth_ + 1);
    const std::vector<std::string> fields = inner.fields(word);
    return fields.empty() ? "" : fields.front();
  }
  void put(std::string_view text, bool is_quoted) {
    if (is_quoted)
      out_.quoted(text);
    else
      out_.unquoted(text);
  }

  void part(std::string_view word, bool is_quoted) {
    for (std::size_t at = 0; at < word.size();) {
      const char c = word[at];
      const std::size_t end = std::min(is_quoted && c == '\'' ? at + 1 : end_of_part(word, at), word.size());
      const std::string_view piece = word.substr(at, end - at);
      at = end;
      state_.budget.look(piece.size());
      if (c == '\\') {
        if (piece == "\\\n") continue;
        const bool stays =
            is_quoted && piece.size() == 2 && std::string_view("$`\"\\").find(piece[1]) == std::string_view::npos;
        out_.quoted(stays || piece.size() < 2 ? piece : piece.substr(1));
      } else if (c == '\'' && !is_quoted) {
        out_.quoted(piece.substr(1, piece.size() - 2));
      } else if (c == '"' && !is_quoted) {
        if (piece != "\"$@\"" && piece != "\"${@}\"") out_.quoted("");
        part(piece.substr(1, piece.size() - 2), true);
      } else if (c == '`') {
        put(output_of(piece.substr(1, piece.size() - 2)), is_quoted);
      } else if (c == '$' && piece.size() > 1) {
        braced(piece, is_quoted);
      } else if (c == '$') {
        const std::size_t length = name_length(word.substr(at));
        named(std::string(word.substr(at, length)), is_quoted);
        at += length;
      } else {
        out_.quoted(piece);
      }
    }
  }

  static std::size_t name_length(std::string_view text) {
    if (text.empty()) return 0;
    if (std::isdigit(static_cast<unsigned char>(text[0])) != 0 ||
        std::string_view("@*#?$!-").find(text[0]) != std::string_view::npos)
      return 1;
    std::size_t length = 0;
    while (length < text.size() && (std::isalnum(static_cast<unsigned char>(text[length])) != 0 || text[length] == '_'))
      ++length;
    return length;
  }

  void named(const std::string& name, bool is_quoted) {
    if (name.empty()) return out_.quoted("$");
    if (name == "@" || name == "*") return out_.several(state_.arguments, is_quoted && name == "@");
    put(value(name).value_or(unknown(name)), is_quoted);
  }

  std::string output_of(std::string_view commands) {
    std::string text = state_.substitute ? state_.substitute(std::string(commands)) : unknown("(…)");
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  // Returns the value of a name, or nothing.
  std::optional<std::string> value(const std::string& name) {
    std::optional<std::string> found = looked_up(name);
    if (found) state_.budget.look(found->size());
    return found;
  }
  std::optional<std::string> looked_up(const std::string& name) {
    if (name == "@" || name == "*") {
      std::string all;
      for (const std::string& one : state_.arguments) all += (all.empty() ? "" : " ") + one;
      return all;
    }
    if (name == "#") return std::to_string(state_.arguments.size());
    if (name == "?" || name == "!" || name == "-") return "0";
    if (name == "$" || name == "RANDOM" || name == "SECONDS") return "1";
    if (name == "0" || name == "BASH_SOURCE") return state_.script;
    if (name == "LINENO") return std::to_string(state_.line);
    if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
      const std::size_t place = name.size() > 4 ? 0 : std::stoul(name);
      if (place >= 1 && place <= state_.arguments.size()) return state_.arguments[place - 1];
      // An argument may be given as a variable of the environment, "1".
      const auto given = state_.variables.find(name);
      return given == state_.variables.end() ? std::nullopt : std::optional(given->second.elements.front());
    }
    if (const Variable* found = state_.find(name)) return found->elements.empty() ? "" : found->elements.front();
    if (name == "PWD") return state_.folder;
    return std::nullopt;
  }

  void braced(std::string_view piece, bool is_quoted) {
    if (piece.starts_with("$((") && piece.ends_with("))"))
      return put(arithmetic(std::string(piece.substr(3, piece.size() - 5)), state_), is_quoted);
    const std::string_view inner = piece.substr(2, piece.size() - 3);
    if (piece[1] == '(') return put(output_of(inner), is_quoted);
    parameter(inner, is_quoted);
  }

  // Returns the words of an associative array, the numbers of another.
  std::vector<std::string> keys_of(const Variable& variable) {
    if (!variable.keys.empty()) return variable.keys;
    std::vector<std::string> numbers;
    state_.budget.keep(variable.elements.size() * sizeof(std::string));
    for (std::size_t i = 0; i < variable.elements.size(); ++i) numbers.push_back(std::to_string(i));
    return numbers;
  }

  // ${…}
  void parameter(std::string_view text, bool is_quoted) {
    const bool counts = text.size() > 1 && text[0] == '#';
    const bool is_indirect = text.size() > 1 && text[0] == '!';
    if (counts || is_indirect) text.remove_prefix(1);
    std::size_t length = name_length(text);
    // ${10}
    while (length > 0 && std::isdigit(static_cast<unsigned char>(text[0])) != 0 && length < text.size() &&
           std::isdigit(static_cast<unsigned char>(text[length])) != 0)
      ++length;
    std::string name(text.substr(0, length));
    text.remove_prefix(length);
    std::string index;
    bool has_index = false;
    if (text.starts_with('[')) {
      const std::size_t close = text.find(']');
      has_index = close != std::string_view::npos;
      if (has_index) {
        index = nested(text.substr(1, close - 1));
        text.remove_prefix(close + 1);
      }
    }
    if (is_indirect && !has_index) name = without_unknown(value(name).value_or(""));
    if (name.empty()) return out_.quoted("");
    const bool is_all = has_index && (index == "@" || index == "*");
    const Variable* found = state_.find(name);
    if (is_all && text.empty() && !counts) {
      if (found != nullptr)
        out_.several(is_indirect ? keys_of(*found) : found->elements, is_quoted && index == "@");
      else if (name != "BASH_SOURCE")
        out_.unquoted(unknown(name));
      return;
    }
    std::optional<std::string> now;
    if (is_all || name == "@") {
      now = "";
      const std::vector<std::string> none;
      const auto& elements = name == "@" ? state_.arguments : found != nullptr ? found->elements : none;
      if (counts) return put(std::to_string(elements.size()), is_quoted);
      for (const std::string& one : elements) {
        state_.budget.look(one.size() + sizeof(one));
        *now += (now->empty() ? "" : " ") + one;
      }
      if (elements.empty()) now = std::nullopt;
    } else if (has_index && found != nullptr && !found->keys.empty()) {
      state_.budget.look(found->keys.size());
      const auto at = std::find(found->keys.begin(), found->keys.end(), index);
      if (at != found->keys.end()) now = found->elements[static_cast<std::size_t>(at - found->keys.begin())];
    } else if (has_index && found != nullptr) {
      const std::string place = arithmetic(index, state_);
      const std::size_t at =
          place.size() < 7 && !place.empty() && std::isdigit(static_cast<unsigned char>(place[0])) != 0
              ? std::stoul(place)
              : 0;
      if (at < found->elements.size()) now = found->elements[at];
    } else {
      now = value(name);
    }
    if (counts) return put(std::to_string(without_unknown(now.value_or("")).size()), is_quoted);
    changed(name, now, text, is_quoted);
  }

  // Applies the operator after a name to the name's value.
  void changed(const std::string& name, const std::optional<std::string>& now, std::string_view text, bool is_quoted) {
    const bool asks_empty =
        text.starts_with(':') && text.size() > 1 && std::string_view("-=?+").find(text[1]) != std::string_view::npos;
    const std::string_view by = asks_empty ? text.substr(1) : text;
    if (!by.empty() && std::string_view("-=?+").find(by[0]) != std::string_view::npos) {
      const bool is_set = now && (!asks_empty || !without_unknown(*now).empty());
      if (by[0] == '+') return is_set ? other(by.substr(1), is_quoted) : void();
      if (is_set) return put(*now, is_quoted);
      if (by[0] == '?') return put(unknown(name), is_quoted);
      if (by[0] == '=') state_.set(name, {nested(by.substr(1))});
      return other(by.substr(1), is_quoted);
    }
    std::string value = now.value_or(unknown(name));
    if (!unknown_names(value).empty()) return put(value, is_quoted);
    if (by.starts_with('#') || by.starts_with('%')) {
      const bool is_long = by.size() > 1 && by[1] == by[0];
      put(cut(value, nested(by.substr(is_long ? 2 : 1)), by[0] == '#', is_long), is_quoted);
    } else if (by.starts_with('/')) {
      put(replaced(value, by.substr(1)), is_quoted);
    } else if (by.starts_with(',') || by.starts_with('^')) {
      const bool is_all = by.size() > 1;
      for (std::size_t i = 0; i < value.size() && (i == 0 || is_all); ++i)
        value[i] = static_cast<char>(by[0] == ',' ? std::tolower(static_cast<unsigned char>(value[i]))
                                                  : std::toupper(static_cast<unsigned char>(value[i])));
      put(value, is_quoted);
    } else if (by.starts_with(':')) {
      put(part_of(value, by.substr(1)), is_quoted);
    } else {
      put(value, is_quoted);
    }
  }

  // Expands the word after an operator. The word's own quotes count only where the whole is not quoted.
  void other(std::string_view word, bool is_quoted) {
    if (is_quoted) return out_.quoted(nested(word));
    part(word, false);
  }

  std::string cut(const std::string& value, const std::string& pattern, bool at_begin, bool is_long) {
    for (std::size_t i = 0; i <= value.size(); ++i) {
      const std::size_t length = is_long ? value.size() - i : i;
      const std::string_view whole = value;
      const std::string_view piece = at_begin ? whole.substr(0, length) : whole.substr(value.size() - length);
      if (fits(piece, pattern, state_.budget))
        return at_begin ? value.substr(length) : value.substr(0, value.size() - length);
    }
    return value;
  }

  std::string replaced(const std::string& value, std::string_view by) {
    const bool is_all = by.starts_with('/');
    if (is_all) by.remove_prefix(1);
    const std::size_t slash = by.find('/');
    const std::string from = nested(by.substr(0, slash)),
                      to = slash == std::string_view::npos ? "" : nested(by.substr(slash + 1));
    if (from.empty()) return value;
    std::string out;
    std::size_t at = 0;
    for (std::size_t found; (found = found_in(value, from, at, state_.budget)) != std::string::npos;) {
      state_.budget.look(found - at + to.size());
      out += value.substr(at, found - at) + to;
      at = found + from.size();
      if (!is_all) break;
    }
    return out + value.substr(at);
  }

  std::string part_of(const std::string& value, std::string_view by) {
    const std::size_t colon = by.find(':');
    const auto number = [&](std::string_view text) {
      const std::string made = arithmetic(std::string(text), state_);
      return made.empty() || made.size() > 9 || !unknown_names(made).empty() ? 0L : std::stol(made);
    };
    const long size = static_cast<long>(value.size());
    long begin = number(by.substr(0, colon));
    begin = std::clamp(begin < 0 ? size + begin : begin, 0L, size);
    const long length = colon == std::string_view::npos ? size : number(by.substr(colon + 1));
    const long end = std::clamp(length < 0 ? size + length : begin + length, begin, size);
    return value.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  State& state_;
  Fields out_;
  int depth_;
};

}  // namespace

void State::compare(std::string_view text, const std::string& word) {
  const auto names = unknown_names(text);
  if (names.empty() || !without_unknown(text).empty() || word.empty() || word == "*") return;
  constexpr std::size_t kMaxNames = 64, kMaxWords = 16;  // a message needs no more
  if (choices.size() >= kMaxNames && !choices.contains(*names.begin())) return;
  std::vector<std::string>& words = choices[*names.begin()];
  if (words.size() < kMaxWords && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

std::string unknown(const std::string& name) { return kUnknownBegin + name + kUnknownEnd; }

std::string without_unknown(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const char c : text) {
    if (c == kUnknownBegin) inside = true;
    if (!inside) out += c;
    if (c == kUnknownEnd) inside = false;
  }
  return out;
}

std::string readable(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c == kUnknownBegin)
      out += '$';
    else if (c != kUnknownEnd)
      out += c;
  return out;
}

std::set<std::string> unknown_names(std::string_view text) {
  std::set<std::string> names;
  for (std::size_t at = 0; (at = text.find(kUnknownBegin, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find(kUnknownEnd, at), text.size());
    names.insert(std::string(text.substr(at + 1, end - at - 1)));
    at = end;
  }
  return names;
}

void State::set(const std::string& name, std::vector<std::string> elements, bool is_array) {
  constexpr std::size_t kNodeBytes = 64;
  if (!variables.contains(name)) budget.keep(sizeof(Variable) + name.size() + kNodeBytes);
  Variable made;
  made.elements = std::move(elements);
  made.is_array = is_array;
  made.line = line;
  made.order = ++assignments;
  variables[name] = std::move(made);
}

const Variable* State::find(const std::string& name) const {
  const auto stands_for = references.find(name);
  const auto found = variables.find(stands_for == references.end() ? name : stands_for->second);
  return found == variables.end() ? nullptr : &found->second;
}

std::vector<std::string> fields_of(const std::string& word, State& state) {
  return Expander(state, true, 0).fields(word);
}

std::string text_of(const std::string& word, State& state) {
  const std::vector<std::string> fields = Expander(state, false, 0).fields(word);
  return fields.empty() ? "" : fields.front();
}

std::string arithmetic(const std::string& expression, State& state) {
  const std::string text = text_of(expression, state);
  if (const auto names = unknown_names(text); !names.empty()) return unknown(*names.begin());
  const Sum sum = sum_of(
      text,
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = state.variables.find(name);
        if (found == state.variables.end()) return std::nullopt;
        return found->second.elements.empty() ? "0" : found->second.elements.front();
      },
      state.budget);
  if (!sum.missing.empty()) return unknown(sum.missing);
  return std::to_string(sum.value);
}

std::size_t found_in(std::string_view text, std::string_view word, std::size_t from, Budget& budget) {
  const std::size_t found = text.find(word, from), end = std::min(found, text.size());
  // At each place up to the first that fits, the whole word may have been compared.
  budget.look((end - std::min(from, end) + 1) * (word.size() + 1));
  return found;
}

bool fits(std::string_view text, std::string_view pattern, Budget& budget) {
  // The match is greedy with one position to return to, so that the time is bounded by the product of both lengths.
  std::size_t t = 0, p = 0, star = std::string_view::npos, back = 0;
  const auto one = [&](std::size_t& next) {
    if (p >= pattern.size()) return false;
    next = p + 1;
    if (pattern[p] == '?') return true;
    if (pattern[p] == '[') {
      const std::size_t close = pattern.find(']', p + 2);
      if (close == std::string_view::npos) budget.look(pattern.size() - p);
      if (close != std::string_view::npos) {
        std::string_view set = pattern.substr(p + 1, close - p - 1);
        budget.look(set.size());
        const bool is_not = set.starts_with('!') || set.starts_with('^');
        if (is_not) set.remove_prefix(1);
        bool is_in = false;
        for (std::size_t i = 0; i < set.size(); ++i) {
          if (i + 2 < set.size() && set[i + 1] == '-') {
            is_in = is_in || (set[i] <= text[t] && text[t] <= set[i + 2]);
            i += 2;
          } else {
            is_in = is_in || set[i] == text[t];
          }
        }
        next = close + 1;
        return is_in != is_not;
      }
    }
    return pattern[p] == text[t];
  };
  while (t < text.size()) {
    budget.look(1);
    std::size_t next = 0;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      back = t;
    } else if (one(next)) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++back;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace stretto::shell
