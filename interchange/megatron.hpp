#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interchange/imported.hpp"
#include "model/scenario.hpp"

namespace stretto {

// A scenario as the command line of Megatron-LM (megatron/training/arguments.py at d98e8a64, August 2026), in both
// directions, by one table, and its [overlap] as Megatron-Bridge's CommOverlapConfig. docs/interchange.md shows the
// table.

// A key of [model], [parallel], [overlap] or [training] that affects how a step is computed, and its flag.
struct MegatronRow {
  using Value = nlohmann::json;
  std::string key;   // "parallel.tensor_model_parallel_size"
  std::string flag;  // "": Megatron-LM has none
  // Returns the key's value; null: the value of a command line without the flag.
  std::function<Value(const Scenario&)> get;
  Value given = nullptr;   // the value for which a flag without an argument stands
  Value absent = nullptr;  // the meaning of a command line without the flag; null: Stretto's default
  std::string with = "";   // another flag that must be given with it
  std::vector<std::pair<std::string, std::string>> words = {};  // Megatron-LM's words and Stretto's, where they differ
  bool is_switch = false;
  bool in_bridge = false;  // CommOverlapConfig has a field of the key's name
  bool is_list = false;
  bool may_be_one = false;                  // a list; a single value may stand for a list of one
  std::vector<std::string> aliases = {};    // other spellings that Megatron-LM accepts
  std::vector<std::string> spellings = {};  // other spellings of the key that a scenario may have
  std::string name() const { return key.substr(key.find('.') + 1); }
};
const std::vector<MegatronRow>& megatron_rows();

// Returns a script: the environment that Megatron-LM asserts, and a command line, including torchrun, with one flag and
// its value a line. Throws Error(input) for a pipeline schedule that Megatron-LM does not have.
Translation to_megatron(const Scenario& scenario);
// Returns a scenario from flags, or from a shell script with flags (shell_run.hpp). `name` stands for the text in
// messages. Every flag is judged (megatron_flags.hpp). Throws as scenario_of() of imported.hpp, and for a flag that is
// likely misspelled.
Translation from_megatron(std::string_view text, const std::string& name, const ImportOptions& options = {});
struct CommandLine;
Translation from_megatron_flags(const CommandLine& line, const std::string& name, const ImportOptions& options);
// Returns the word as a whole number, a number or a string.
nlohmann::json value_of_word(const std::string& word);

// Returns CommOverlapConfig(…) in Python.
Translation to_bridge(const Scenario& scenario);
// Returns the [overlap] section from keyword arguments in Python, or YAML. Throws Error(input) for a field that Stretto
// does not have.
Translation from_bridge(std::string_view text, const std::string& name);

// Returns the table of docs/interchange.md.
std::string megatron_reference();

}  // namespace stretto
