#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.hpp"

namespace stretto::shell {

// The part of the shell's language in which launch scripts are written, as a tree. Words keep their quotes and
// expansions: shell_expand.hpp evaluates them. No command is run here. Trees own their text and are values; `line`
// counts from 1 in the file that parse() was given. Nodes of one list are in the order of the script.

struct Assignment {
  std::string name;      // "ARGS", or "ARGS[3]"
  bool appends = false;  // +=
  bool is_array = false;
  std::vector<std::string> words;  // one word, or the elements of an array
};

struct Node;
using Nodes = std::vector<Node>;

// The commands after a `case` pattern, or an arm of an `if`: a condition, and the commands that it guards.
struct Arm {
  std::vector<std::string> patterns;  // of `case`
  Nodes condition;                    // of `if`; empty: else
  Nodes body;
};

struct Node {
  enum class Kind : std::uint8_t {
    simple,      // assignments and words
    test,        // [[ words ]]
    arithmetic,  // (( words[0] ))
    branch,      // if: arms
    choice,      // case words[0] in arms
    each,        // for NAME in words: arms[0].body
    repeat,      // while or until: arms[0]
    function,    // words[0]: arms[0].body
    group,       // { } or ( ): arms[0].body
  };
  enum class Join : std::uint8_t { always, if_true, if_false };  // how the result of the previous command decides
  Kind kind = Kind::simple;
  Join join = Join::always;
  bool negates = false;
  bool is_piped = false;  // its output goes to the next node
  int line = 1;
  std::vector<Assignment> assignments;  // of a simple command; they come before its words
  std::vector<std::string> words;       // as `Kind` says
  std::vector<Arm> arms;                // as `Kind` says; in order; at most one of them is taken
  bool is_until = false;
  std::string document;     // the text of a here-document
  bool is_literal = false;  // its limit is quoted, so that nothing in it is expanded
  std::string output;       // the word after > or >>
  std::string here_string;  // the word after <<<
  std::string input;        // the word after <
};

// Characters around the name of an unknown value (shell_expand.hpp).
constexpr char kUnknownBegin = '\x01', kUnknownEnd = '\x02';

// Parses a script. Throws Error(input), "name:line: …", for text that cannot be understood, such as a quote or an `if`
// that does not end, and as the budget does.
Nodes parse(std::string_view text, const std::string& name, Budget& budget, int first_line = 1);

// Returns the end of the part that begins at text[at] with a quote, a backslash or `$`, or at + 1 for any other
// character; npos where the part does not end. Quotes nest as in the shell.
std::size_t end_of_part(std::string_view text, std::size_t at);

// Returns whether the text is a variable's name: a letter or _, then letters, digits and _.
bool is_name(std::string_view text);

}  // namespace stretto::shell
