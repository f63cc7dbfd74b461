#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "interchange/command_line.hpp"

namespace stretto {

// Megatron-LM's arguments by their names as the program has them (argparse's namespace), where no shell is left to be
// read: the exact input.

// Returns the command line whose arguments are these: {"num_layers": 32, "add_bias_linear": false}. Names that no table
// of flags has are in the line's notes. `lines` has the line of each name.
CommandLine command_line_of_arguments(const nlohmann::json& arguments, const std::map<std::string, int>& lines);

// Returns the arguments that Megatron-LM prints in a log (_print_args() of arguments.py: "  num_layers ...... 32");
// nothing where the text has none. GPUs are those of world_size.
std::optional<CommandLine> printed_arguments(std::string_view text);

// Returns a printed list of words, "['pretrain_gpt.py', '--bf16']", as a command; other texts as they are.
std::string command_of_list(std::string_view text);

}  // namespace stretto
