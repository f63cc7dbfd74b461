#pragma once
#include <string>

#include "cli/files.hpp"

namespace stretto::cli {

// `validate --register FILE` and `validate STEPS --score FILE`: predictions that are written down before anybody has
// measured their steps, and what became of them (validate/registered.hpp).
struct RegisterOptions {
  Output file;        // "": nothing is registered
  std::string score;  // a registered file; "": none
};
void add_register_options(CLI::App& command, Files& files, RegisterOptions& options);
void register_recipes(const RegisterOptions& options);
// Prints the steps of `published` that the file predicts.
void show_score(const RegisterOptions& options, const std::string& published, const Output& json);

}  // namespace stretto::cli
