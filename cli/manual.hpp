#pragma once
#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace stretto::cli {

// Documentation of the command line for other programs, made from the commands themselves; hidden options and commands
// are left out.

// Returns a manual page (troff, man macros) of all commands.
std::string man_page(const CLI::App& app);

bool is_shown(const CLI::Option& option);
std::vector<const CLI::App*> shown_commands(const CLI::App& app);

}  // namespace stretto::cli
