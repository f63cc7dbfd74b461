#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/interchange/imported.hpp"
#include "model/scenario.hpp"

namespace stretto {

// A scenario as the command line of Megatron-LM (megatron/training/arguments.py at d98e8a64, August 2026), both ways,
// by one table, and its [overlap] as Megatron-Bridge's CommOverlapConfig. docs/interchange.md shows the table.

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
  bool is_switch = false;
  bool in_bridge = false;  // a field of CommOverlapConfig too, by the key's name
  bool is_list = false;
  bool may_be_one = false;                  // and a list of one is that value
  std::vector<std::string> aliases = {};    // other spellings that Megatron-LM takes
  std::vector<std::string> spellings = {};  // that a scenario may have in the key's place
  std::string name() const { return key.substr(key.find('.') + 1); }
};
const std::vector<MegatronRow>& megatron_rows();

// A script: the environment that Megatron-LM asserts, and a command line, torchrun included, a flag and its value a
// line. Throws Error(input) for a pipeline schedule that Megatron-LM does not have.
Translation to_megatron(const Scenario& scenario);
// A scenario from flags, or from a shell script that has them (shell_run.hpp). `name` stands for it in messages. Every
// flag is judged (megatron_flags.hpp). Throws as scenario_of() of imported.hpp, and for a flag that is likely
// misspelled.
Translation from_megatron(std::string_view text, const std::string& name, const ImportOptions& options = {});
struct CommandLine;
Translation from_megatron_flags(const CommandLine& line, const std::string& name, const ImportOptions& options);
// A whole number, a number or the word itself.
nlohmann::json value_of_word(const std::string& word);

// CommOverlapConfig(…) in Python.
Translation to_bridge(const Scenario& scenario);
// The [overlap] section from keyword arguments in Python, or YAML. Throws Error(input) for a field that Stretto does
// not have.
Translation from_bridge(std::string_view text, const std::string& name);

// The table of docs/interchange.md.
std::string megatron_reference();

}  // namespace stretto
