#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interchange/shell_expand.hpp"

namespace stretto::shell {

// Finds what a launch script would start, without starting anything: a small interpreter of the part of the shell in
// which such scripts are written. It writes no file, opens no connection and starts no program. It reads only the files
// that the script includes (`source`, `sbatch`, `bash`), through `Outside::read`.

struct Outside {
  std::map<std::string, std::string> environment;
  std::vector<std::string> arguments;  // $1, …
  std::string script;                  // its path, for $0 and for files in its folder
  // Returns the text of a file that the script includes, found by its path or, where the path does not exist, by its
  // name in the script's folder; nothing where there is none.
  std::function<std::optional<std::string>(const std::string& path)> read;
};

struct Call {
  std::vector<std::string> words;
  int line = 1;
};

struct Run {
  std::vector<Call> calls;  // started programs, in order
  std::map<std::string, Variable> variables;
  std::map<std::string, int> exports;                       // names of exported variables, with their lines
  std::vector<std::string> batch;                           // the words of #SBATCH lines
  std::map<std::string, std::vector<std::string>> choices;  // as State has them
  std::vector<std::string> notes;  // "line 7: …": a command that was not understood, or an assumption
};

// Interprets a script. Throws Error(input) for text that cannot be read as a script (shell_syntax.hpp), and for a
// script that does not end.
Run run(std::string_view text, const std::string& name, const Outside& outside);

}  // namespace stretto::shell
