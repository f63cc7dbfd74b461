#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// A scenario as the command line of Megatron-LM (core 0.15 and, of flags that are newer, 2026:
// megatron/training/arguments.py), both ways, by one table, and its [overlap] as Megatron-Bridge's CommOverlapConfig.
// docs/interchange.md shows the table.

// A key of [model], [parallel], [overlap] or [training] that says how a step is computed, and its flag.
struct MegatronRow {
  using Value = nlohmann::json;
  std::string key;   // "parallel.tensor_model_parallel_size"
  std::string flag;  // "": Megatron-LM has none
  // The key's value; null: as where the flag is absent.
  std::function<Value(const Scenario&)> get;
  Value given = nullptr;   // what the flag stands for, of one without a value
  Value absent = nullptr;  // what a command line without the flag means; null: Stretto's default
  std::string with = "";   // a flag that goes with it
  std::vector<std::pair<std::string, std::string>> words = {};  // Megatron-LM's and ours, where they differ
  bool in_bridge = false;                                       // a field of CommOverlapConfig too, by the key's name
  bool is_list = false;
  bool may_be_one = false;  // and a list of one is that value
  std::string name() const { return key.substr(key.find('.') + 1); }
};
const std::vector<MegatronRow>& megatron_rows();

// Text for another program, and what it cannot say, a line each.
struct Translation {
  std::string text;
  std::vector<std::string> notes;
};

// A command line, torchrun included, a flag and its value a line. Throws Error(input) for a pipeline schedule that
// Megatron-LM does not have.
Translation to_megatron(const Scenario& scenario);
// A scenario from flags, or from a shell script that has them: quotes, comments, arrays and variables that the script
// sets to words are understood. `name` stands for it in messages. Throws Error(input) for a flag that changes the
// computation and that Stretto does not have, with the nearest spelling, and for whatever the scenario's reader
// refuses.
Translation from_megatron(std::string_view text, const std::string& name);

// CommOverlapConfig(…) in Python.
Translation to_bridge(const Scenario& scenario);
// The [overlap] section from keyword arguments in Python, or YAML. Throws Error(input) as from_megatron().
Translation from_bridge(std::string_view text, const std::string& name);

// The table of docs/interchange.md.
std::string megatron_reference();

}  // namespace stretto
