#pragma once
#include <CLI/App.hpp>
#include <string>

namespace stretto::cli {

// Returns the completion of a shell, "bash" ("" too), "zsh" or "fish", made from the commands themselves: commands,
// options, the choices of options with a closed list, keys of a scenario after --set, names of platforms after
// --platform and of scenarios that come with Stretto elsewhere, and files. Hidden commands and options are left out.
// Throws Error(input) for another shell.
std::string completion(const CLI::App& app, const std::string& shell);

}  // namespace stretto::cli
