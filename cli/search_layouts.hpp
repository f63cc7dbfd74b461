#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "cli/commands.hpp"
#include "model/scenario.hpp"

namespace stretto::cli {

// The search that `sweep` and `plan` share: `sweep` varies a scenario, `plan` makes the scenario from its options.

struct SweepOptions : CommonOptions {
  std::vector<std::string> over;
  std::string shard = "0/1";
  bool resume = false, all = false, names_platform = false;
  std::int64_t best = 10;
  Output out, csv;
  Output winner;  // the best as a scenario, of `plan` alone
};

// The scenario that a sweep varies: a file, or the text that `plan` has made.
struct Swept {
  std::string text;  // contents of the scenario
  std::function<Scenario(const std::vector<std::string>& set, const std::string& platform)> read;
  std::function<TomlTable()> axes;
  std::string command;  // the command of one point, without its settings
  // Returns a scenario with these settings on the platform (""; that of the options); null where the scenario is a file
  // of the user's.
  std::function<std::string(const std::vector<std::string>& set, const std::string& platform)> text_of = nullptr;
};

// Searches, prints the results and writes the files of the options. Throws Error(input) where no point can be built,
// Error(runtime) where none fits and after an interruption, with all results written.
void search_layouts(SweepOptions& options, const Swept& swept);
// Adds the options of the search, --json and --html included.
void add_search_options(CLI::App& command, SweepOptions& options);

}  // namespace stretto::cli
