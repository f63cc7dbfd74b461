#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::habits {

// A run as far as it is known. A text that is "" is not known.
struct Run {
  std::string profile, platform, model;  // the model as somebody wrote it
  std::string precision;                 // "bf16", "fp8_cs", "fp8": a recipe that is not said
  std::string task = "pretrain";
  std::string release;  // "24.09", "25.01.1"; "": the newest
  std::string source;   // of a published row
  std::int64_t gpus = 0, tp = 1, pp = 1, cp = 1;
  std::set<std::string> stated;  // "section.key" that the run says itself
  bool says_ways = false;        // it says by itself how rows of experts are exchanged and what CUDA graphs hold
};

// A value that nobody stated, and why it is taken.
struct Assumed {
  std::string key, value;       // "training.cuda_graph_modules", TOML
  std::string because, source;  // in words; where it is written
  bool is_of_recipe = false;    // of bridge_recipes.csv
  bool operator==(const Assumed&) const = default;
};

// The values that the table fills in (scenarios/habits.toml explains its entries).
struct Filled {
  std::string profile, precision;    // the run's, or those in their place
  std::vector<Assumed> values;       // in the order of the table, each key once
  std::vector<std::string> said;     // entries in words that stand for several values or a profile
  std::string refused;               // why such a run is not modelled; "": it is
  std::int64_t document_tokens = 0;  // of fine-tuning; 0: the table does not say
  std::string recipe;                // the recipe of bridge_recipes.csv that values came from; "": none
};

// Throws Error(input) where the table cannot be read.
Filled habits_of(const Run& run);

// Returns whether Megatron-Bridge's recipes say how this profile's framework runs a model.
bool runs_recipes(const std::string& profile);
// Returns the keys of recipes that a search of layouts takes over: no size, and nothing that follows from one.
const std::vector<std::string>& keys_outside_layout();

// Returns the first release in a text, "25.04.02" of "NeMo v25.04.02 (H100)"; "" where there is none: year of two
// digits from 19 to 39, month, and a patch.
std::string release_of(std::string_view text);
// Returns whether a release is at most `until` and at least `from`, by as many numbers as these have.
bool is_between(std::string_view release, std::string_view from, std::string_view until);

}  // namespace stretto::habits
