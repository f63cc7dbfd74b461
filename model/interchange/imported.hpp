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

// A scenario from another program's settings, whichever program: what a reader of settings finds, and what is made of
// it.

// Text for another program or from one, and what is to be said of it, a line each.
struct Translation {
  std::string text;
  std::vector<std::string> notes;
};

struct ImportOptions {
  std::vector<std::string> overrides;              // "section.key=value", of the scenario; they win
  std::int64_t gpus = 0;                           // ranks; 0: as the settings say
  std::map<std::string, std::string> environment;  // variables that a script finds set
  std::string path;                                // where the settings stand, "" for none
  // The text of a further file that a script takes in; nothing where there is none.
  std::function<std::optional<std::string>(const std::string& path)> read;
};

// A setting that is judged, as a person finds it again: "--qk-l2-norm (line 12)".
struct Judged {
  std::string what;
  int line = 0;               // 0: of no line
  std::string effect;         // what it would change
  std::string place() const;  // "--qk-l2-norm (line 12)"
};

struct Settings {
  std::string name;                              // of the file, in messages
  std::map<std::string, nlohmann::json> values;  // by "section.key" of a scenario
  std::string profile;
  std::vector<std::string> taken, ignored;
  std::vector<Judged> approximated;
  std::map<std::string, Judged> refused;     // by what is not modelled: "experts", "fp8"
  std::map<std::string, std::string> unset;  // keys whose value is that of a variable that nothing sets
  std::vector<std::string> notes;
  // GPUs that the settings start, where they say so.
  std::optional<std::int64_t> ranks;
  std::string ranks_from;        // "torchrun's --nproc_per_node and --nnodes"
  std::string vocabulary_hints;  // names of tokenizer, model and file, the best first, a line each
  std::string vocabulary_key;    // what the program calls it: "--vocab-size"

  const nlohmann::json* find(const std::string& key) const;
  std::int64_t whole(const std::string& key, std::int64_t otherwise) const;
  bool is(const std::string& key, const nlohmann::json& value) const;
};

// The scenario's text, checked by the scenario's reader, and notes: what was taken, what has no effect on a step's
// time, and what is approximated or not modelled. Throws Error(input): one line that names all that is not modelled at
// all; all that is missing; or what the reader of scenarios says.
Translation scenario_of(Settings settings, const ImportOptions& options);
// Its first step: throws where something is refused. --set training.precision makes of fp8 something that is
// approximated.
void refuse(Settings& settings, const ImportOptions& options);

// TOML of the values; `overrides` are TOML by key, and win.
std::string toml_of(const Settings& settings, const std::map<std::string, std::string>& overrides);

}  // namespace stretto
