#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.hpp"

namespace stretto::shell {

// Variables of a script and the expansion of its words: quotes, $NAME, ${NAME…}, $((…)), $(…), arrays. No file is
// written, and no program is started.

// A value that no command in the script sets, such as an argument, is a mark in the text. The mark counts as empty
// wherever the script tests it, and lets a message name the missing value.
std::string unknown(const std::string& name);
std::string without_unknown(std::string_view text);
std::set<std::string> unknown_names(std::string_view text);
// Returns the text for a person: $NAME in place of a mark.
std::string readable(std::string_view text);

struct Variable {
  std::vector<std::string> elements;
  std::vector<std::string> keys;  // of an associative array: one for each element; else empty
  bool is_array = false;
  int line = 0;   // line of the last assignment
  int order = 0;  // number of the last assignment among all assignments
};

struct State {
  std::map<std::string, Variable> variables;
  std::vector<std::string> arguments;  // $1, …
  std::string folder;                  // $PWD
  std::string script;                  // $0
  int line = 1;                        // line of the command that is expanded
  int assignments = 0;
  std::map<std::string, std::string> references;  // [name]: the variable for which it stands (declare -n)
  Budget budget{"script"};                        // of the whole script, with all that it includes
  // Words that a condition compares a value with that nothing sets, by the value's name: {"2", {"8B", "70B"}}.
  std::map<std::string, std::vector<std::string>> choices;
  // Returns the output of $(…).
  std::function<std::string(const std::string& commands)> substitute;

  void set(const std::string& name, std::vector<std::string> elements, bool is_array = false);
  // Returns the variable, or the one for which the name stands; nullptr for none.
  const Variable* find(const std::string& name) const;
  // Adds a choice where `text` is a value that nothing sets.
  void compare(std::string_view text, const std::string& word);
};

// Returns the fields of a word: unquoted expansions are split at blanks.
std::vector<std::string> fields_of(const std::string& word, State& state);
// Returns the expansion as one text, as in an assignment.
std::string text_of(const std::string& word, State& state);
// Returns a whole number, or the mark of an unknown value.
std::string arithmetic(const std::string& expression, State& state);

// Returns whether the text matches a pattern of `case` or [[ == ]]: *, ?, [abc].
bool fits(std::string_view text, std::string_view pattern, Budget& budget);
// Returns where `word` is in the text from `from` on, or npos; charged with every comparison that this may take.
std::size_t found_in(std::string_view text, std::string_view word, std::size_t from, Budget& budget);

}  // namespace stretto::shell
