#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::shell {

// Variables of a script and what its words become: quotes, $NAME, ${NAME…}, $((…)), $(…), arrays. Nothing is written,
// and no program is started.

// A value that nothing in the script sets, an argument for example, is a mark in the text. The mark counts as empty
// wherever the script asks, and lets a message name what is missing.
std::string unknown(const std::string& name);
std::string without_unknown(std::string_view text);
std::set<std::string> unknown_names(std::string_view text);

struct Variable {
  std::vector<std::string> elements;
  bool is_array = false;
  int line = 0;   // of the last assignment
  int order = 0;  // of the last assignment, among all
};

struct State {
  std::map<std::string, Variable> variables;
  std::vector<std::string> arguments;  // $1, …
  std::string folder;                  // $PWD
  std::string script;                  // $0
  int line = 1;                        // of the command that is expanded
  int assignments = 0;
  std::size_t bytes_left = std::size_t{1} << 26;  // that expansions may still make
  // The output of $(…).
  std::function<std::string(const std::string& commands)> substitute;

  void set(const std::string& name, std::vector<std::string> elements, bool is_array = false);
};

// The fields of a word: unquoted expansions are split at blanks.
std::vector<std::string> fields_of(const std::string& word, State& state);
// One text, as in an assignment.
std::string text_of(const std::string& word, State& state);
// A whole number, or the mark of what is unknown.
std::string arithmetic(const std::string& expression, State& state);

// Whether a pattern of `case` or [[ == ]] fits: *, ?, [abc].
bool fits(std::string_view text, std::string_view pattern);

}  // namespace stretto::shell
