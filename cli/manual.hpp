#pragma once
#include <CLI/App.hpp>
#include <string>

namespace stretto::cli {

// Documentation of the command line for other programs, made from the commands themselves; hidden options and commands
// are left out.

// Returns a manual page (troff, man macros) of all commands.
std::string man_page(const CLI::App& app);
// Returns the completion for bash: commands, options, the choices of options with a closed list, otherwise files; names
// of shipped scenarios for SCENARIO and of platforms for --platform.
std::string bash_completion(const CLI::App& app);

}  // namespace stretto::cli
