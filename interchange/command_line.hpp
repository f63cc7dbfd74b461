#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interchange/imported.hpp"

namespace stretto {

// A command line that a launch script starts: the flags of a training program, and how many processes there are.

struct Flag {
  std::string name;  // "--lr"
  std::vector<std::string> values;
  int line = 0;                   // 0: the flag stands in another file than the script
  std::set<std::string> unknown;  // variables in its values that no command sets
};

struct CommandLine {
  std::string program;  // "examples/pretrain_gpt.py", or a module's name; "" where only flags are given
  std::vector<Flag> flags;
  std::vector<std::string> words;  // what follows the program, with the marks of unknown variables (shell_expand.hpp)
  // Overrides "model.seq_length=4096" of programs that take such words, without those whose variable no command sets.
  std::vector<std::string> overrides;
  std::optional<std::int64_t> processes, nodes, gpus;  // processes of a node; nodes; GPUs of all nodes
  std::map<std::string, std::string> exports;          // variables of the environment
  std::map<std::string, int> export_lines;
  std::vector<std::string> notes;
  std::map<std::string, std::vector<std::string>> choices;  // as shell::Run has them
};

// Reads a script, or flags alone. Of a script that starts no program with flags but assigns flags to variables, as
// files of settings do, it returns the flags of these variables. Throws Error(input) as shell::run().
CommandLine command_line_of(std::string_view text, const std::string& name, const ImportOptions& options);

}  // namespace stretto
