#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/interchange/shell_expand.hpp"

namespace stretto::shell {

// What a launch script would start, found without starting anything: a small interpreter of the part of the shell that
// such scripts are written in. It writes no file, opens no connection and starts no program. Of files it reads only
// those that the script takes in (`source`, `sbatch`, `bash`), through `Outside::read`.

struct Outside {
  std::map<std::string, std::string> environment;
  std::vector<std::string> arguments;  // $1, …
  std::string script;                  // its path, for $0 and what stands beside it
  // The text of a file that the script takes in, by its path or, where that is not there, by its name in the script's
  // folder; nothing where there is none.
  std::function<std::optional<std::string>(const std::string& path)> read;
};

struct Call {
  std::vector<std::string> words;
  int line = 1;
};

struct Run {
  std::vector<Call> calls;  // of programs, in their order
  std::map<std::string, Variable> variables;
  std::map<std::string, int> exports;  // names, and the line of each
  std::vector<std::string> batch;      // the words of #SBATCH lines
  std::vector<std::string> notes;      // "line 7: …": what was not understood, or is taken to be so
};

// Throws Error(input) for what cannot be read as a script (shell_syntax.hpp), and for one that does not end.
Run run(std::string_view text, const std::string& name, const Outside& outside);

}  // namespace stretto::shell
