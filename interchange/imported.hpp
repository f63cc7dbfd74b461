#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// A scenario from another program's settings: the data that a reader of settings finds, and the conversion, which does
// not depend on the program.

// Text for another program or from one, with remarks on it, one a line.
struct Translation {
  std::string text;
  std::vector<std::string> notes;
};

struct ImportOptions {
  // "section.key=value" overrides of the scenario; they win over the settings
  std::vector<std::string> overrides;
  std::int64_t gpus = 0;                           // number of ranks; 0: as the settings say
  std::map<std::string, std::string> environment;  // variables that are set when the script starts
  std::string path;                                // path of the settings, "" for none
  // Returns the text of another file that a script includes; nothing where there is no such file.
  std::function<std::optional<std::string>(const std::string& path)> read;
};

// A setting with a judgement, named so that a person finds it: "--qk-l2-norm (line 12)".
struct Assessment {
  std::string what;
  int line = 0;               // 0: it stands on no line
  std::string effect;         // the effect that the setting would have
  std::string place() const;  // "--qk-l2-norm (line 12)"
};

struct Settings {
  std::string name;                              // name of the file in messages
  std::map<std::string, nlohmann::json> values;  // [key "section.key" of a scenario]
  std::map<std::string, Assessment> origins;  // [key]: the setting that says its value; none where a reader assumed it
  std::string profile;
  std::string platform;  // by its name; "": the settings say none
  std::vector<std::string> taken, ignored;
  std::vector<std::string> unknown;  // keys that no table here has, which are left out
  std::vector<Assessment> approximated;
  std::map<std::string, Assessment> refused;                // [what is not modelled: "experts", "fp8"]
  std::map<std::string, std::string> unset;                 // keys → the variable in their value that no command sets
  std::map<std::string, std::vector<std::string>> choices;  // as shell::Run has them
  std::vector<std::string> notes;
  // Notes on a value that a reader assumed, by its key: they are left out where --set or --gpus gives the value.
  std::vector<std::pair<std::string, std::string>> assumptions;
  // Number of GPUs that the settings start, where they say one.
  std::optional<std::int64_t> ranks;
  std::string ranks_from;        // "torchrun's --nproc_per_node and --nnodes"
  std::string file_says;         // what the file's name says of a model whose sizes nothing else gives
  std::string vocabulary_hints;  // names of tokenizer, model and file, the best first, one a line
  std::string vocabulary_key;    // the program's name for it: "--vocab-size"

  // Takes Megatron-LM's recompute_modules: those that a scenario has, and "moe" without its parts. Returns the others,
  // each with the effect of the approximation.
  std::vector<std::pair<std::string, std::string>> take_recompute_modules(const std::vector<std::string>& modules);
  // Removes what does not act without the granularity; all is read.
  void finish_recompute();

  // Calls `take`, and makes `setting` the origin of each key that `take` gives a value.
  template <class Take>
  auto take_from(const Assessment& setting, Take take) {
    struct Origins {
      Settings& of;
      const Assessment& setting;
      std::map<std::string, nlohmann::json> before;
      ~Origins() {
        for (const auto& [key, value] : of.values)
          if (const auto found = before.find(key); found == before.end() || found->second != value)
            of.origins[key] = setting;
      }
    } origins{*this, setting, values};
    return take();
  }

  const nlohmann::json* find(const std::string& key) const;
  std::int64_t whole(const std::string& key, std::int64_t otherwise) const;
  bool is(const std::string& key, const nlohmann::json& value) const;
};

// Returns the scenario's text, checked by the scenario's reader, and notes: settings that were taken, that have no
// effect on a step's time, and that are approximated or not modelled. Throws Error(input) with one line: it names all
// settings that are not modelled at all, or all that are missing, or gives the message of the scenario reader.
Translation scenario_of(Settings settings, const ImportOptions& options);
// The first step of scenario_of: throws where a setting is refused. With --set training.precision, fp8 counts as
// approximated.
void refuse(Settings& settings, const ImportOptions& options);

// Returns TOML of the values; `overrides` are TOML by key, and win.
std::string toml_of(const Settings& settings, const std::map<std::string, std::string>& overrides);

}  // namespace stretto
