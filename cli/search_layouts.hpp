#pragma once
#include <string>
#include <vector>

#include "ask/swept.hpp"
#include "cli/commands.hpp"

namespace stretto::cli {

// The search that `sweep` and `plan` share: `sweep` varies a scenario, `plan` makes the scenario from its options.

struct SweepOptions : CommonOptions {
  std::vector<std::string> over;
  std::string shard = "0/1";
  bool resume = false, all = false, names_platform = false, verbose = false, megatron = false;
  std::string color = "auto";
  std::int64_t best = 10;
  Output out, csv;
  Output winner;        // the best as a scenario, of `plan` alone
  std::string assumed;  // lines on what nobody said, above the results
};

// Searches, prints the results and writes the files of the options. Throws Error(input) where no point can be built,
// Error(runtime) where none fits and after an interruption, with all results written.
void search_layouts(const SweepOptions& options, ask::Swept swept);
// Adds the options of the search, --json and --html included.
void add_search_options(CLI::App& command, SweepOptions& options);

}  // namespace stretto::cli
