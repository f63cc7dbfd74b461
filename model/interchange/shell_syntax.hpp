#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::shell {

// The part of the shell's language that launch scripts are written in, as a tree. Words stay as they are written, with
// their quotes and expansions: shell_expand.hpp has their values. Nothing is run here.

struct Assignment {
  std::string name;  // "ARGS", or "ARGS[3]"
  bool appends = false;
  bool is_array = false;
  std::vector<std::string> words;  // one, or the elements of an array
};

struct Node;
using Nodes = std::vector<Node>;

// What follows a `case` pattern, and the arms of an `if`: conditions, and what they guard.
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
  enum class Join : std::uint8_t { always, if_true, if_false };  // how the command before decides
  Kind kind = Kind::simple;
  Join join = Join::always;
  bool negates = false;
  bool is_piped = false;  // its output goes to the next node
  int line = 1;
  std::vector<Assignment> assignments;
  std::vector<std::string> words;
  std::vector<Arm> arms;
  bool is_until = false;
  std::string document;  // the text of a here-document
};

// Throws Error(input), "name:line: …", for what cannot be understood: a quote or an `if` that does not end.
Nodes parse(std::string_view text, const std::string& name, int first_line = 1);

// The end of what begins at text[at] with a quote, a backslash or `$`, or at + 1 for any other character; npos where it
// does not end. Quotes nest as the shell nests them.
std::size_t end_of_part(std::string_view text, std::size_t at);

bool is_name(std::string_view text);

}  // namespace stretto::shell
