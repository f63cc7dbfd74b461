#pragma once
#include <CLI/App.hpp>
#include <string>

namespace stretto::cli {

// What others need to know of the command line, made from the commands themselves: hidden options and commands are left
// out.

// A manual page (troff, man macros) of all commands.
std::string man_page(const CLI::App& app);
// Completion for bash: commands, options, the choices of those that have a closed list, otherwise files; names of
// shipped scenarios for SCENARIO and of platforms for --platform.
std::string bash_completion(const CLI::App& app);

}  // namespace stretto::cli
