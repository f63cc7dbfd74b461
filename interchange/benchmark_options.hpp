#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stretto {

struct CommandLine;

// The options of Megatron-Bridge's scripts/performance/setup_experiment.py and run_script.py (argument_parser.py at
// 067f987d, and what releases from 0.2 on had), read as argparse does: "-ng 64", "--num_gpus 64", "--num_gpus=64", and
// a beginning of a name that no other option has.
class BenchmarkOptions {
 public:
  // `name` is for messages. Throws Error(input) for an option that there is not, with the nearest spelling.
  BenchmarkOptions(const CommandLine& line, const std::string& name);

  // Values by the option's long name without dashes, "model_recipe_name"; nothing where the command does not have it,
  // or where nothing sets its variable.
  std::optional<std::string> text(const std::string& option) const;
  // Throw Error(input) for other values: a whole number of at least 1; true, 1, t, yes, y and their opposites.
  std::optional<std::int64_t> count(const std::string& option) const;
  std::optional<bool> is_on(const std::string& option) const;
  std::optional<std::vector<std::string>> words(const std::string& option) const;  // of a list with commas
  bool has(const std::string& option) const { return values_.contains(option); }

  // Returns the option as it stands in the command with its value, "-ng 64".
  std::string written(const std::string& option) const;
  // Throws Error(input), "run.sh: -ng 64: message".
  [[noreturn]] void fail(const std::string& option, const std::string& message) const;

  const std::vector<std::string>& taken() const { return taken_; }
  const std::vector<std::string>& ignored() const { return ignored_; }
  const std::vector<std::string>& overrides() const { return overrides_; }    // Hydra's words, "model.seq_length=4096"
  const std::map<std::string, std::string>& unset() const { return unset_; }  // [option] the variable of its value

 private:
  struct Value {
    std::string text, spelling;
  };
  std::string name_;
  std::map<std::string, Value> values_;
  std::map<std::string, std::string> unset_;
  std::vector<std::string> taken_, ignored_, overrides_;
};

}  // namespace stretto
