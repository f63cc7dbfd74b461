#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "habits/habits.hpp"

namespace stretto::habits {

// A question in names: a model on a number of GPUs. "" and 0 are what the table of habits decides.
struct Question {
  std::string model;  // as people write it
  std::int64_t gpus = 0;
  std::string platform;            // a name or a path; "": h100-sxm
  std::string profile, precision;  // "nemo-dgxc"; "fp8_cs"
  std::string task = "pretrain";
  std::int64_t global_batch = 0, seq_length = 0;
  std::vector<std::string> set;  // "section.key=value" of the user's, which win
};

constexpr std::size_t kMostReadings = 4;  // each takes a prediction of its own

// Another plausible value of what was assumed: settings on top of the answer's.
struct Reading {
  std::string what;  // "natural routing"
  std::vector<std::string> set;
};

// The question as a scenario.
struct Answer {
  std::string name, platform, profile;
  std::string model;                        // the model's own name, "deepseek-v3"; `name` has the GPUs too
  std::map<std::string, std::string> keys;  // ["section.key"] value in TOML
  std::vector<Assumed> assumed;             // all of the keys that the question does not say
  std::string start;  // "recipe deepseek_v3_pretrain_1024gpu_h100_bf16 of Megatron-Bridge, which is for 1024 GPUs"
  std::vector<std::string> notes;
  std::vector<Reading> readings;  // at most kMostReadings

  std::string text() const;     // TOML
  std::string summary() const;  // one line
  std::string list() const;     // "assumed: KEY = VALUE, because REASON (SOURCE)" a line
};

// Starts from Megatron-Bridge's recipe for the model on this GPU, with as many sequences a replica; else from that for
// another GPU or precision; else from the smallest layout whose state fits (layout.hpp). Throws Error(input): a model
// that is not known, with the nearest name; GPUs that the layout does not divide, with the nearest numbers.
Answer answer(const Question& question);

// Where a search of layouts begins: what is no size of a layout, of the recipe for the model and GPU.
struct Start {
  std::string profile;  // "": no recipe is for the question, and the other fields but `batch` are empty
  std::string recipe;
  std::vector<Assumed> assumed;  // keys that the search does not vary
  std::int64_t batch = 1;        // sequences of a step: the recipe's by GPUs, else about 4 million tokens
};
Start start_of_search(const Question& question);

// Questions where a command takes a scenario: settings with "gpus=N" in front of a model's name. "profile=NAME" and
// "low_precision=fp8_cs" belong to them.
bool is_question(const std::vector<std::string>& set);
// Takes these settings out of `set`, and returns the name under which every reader of scenarios finds the answer's text
// (keep_toml()): "deepseek-v3 on 512 GPUs". Throws as answer(). Thread-safe.
std::string scenario_of_names(const std::string& model, std::vector<std::string>& set, const std::string& platform);
// Returns the answer of such a name; nullptr for a scenario that is a file. Valid until the program ends.
const Answer* answer_of(const std::string& scenario);
// Returns {"start", "settings": [{"key", "value", "because", "source"}], "notes"}.
nlohmann::json json_of(const Answer& answer);

}  // namespace stretto::habits
