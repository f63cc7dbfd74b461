#include "interchange/launcher_command.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "interchange/command_line.hpp"
#include "interchange/megatron.hpp"
#include "interchange/recipe.hpp"
#include "interchange/torchtitan.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

constexpr const char* kStages[] = {"training", "fine_tuning", "peft"};

// Returns the value of "key=value" among the words; "" for none.
std::string value_of(const std::vector<std::string>& words, const std::string& key) {
  for (const std::string& word : words)
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  return "";
}

// Returns the stage that trains, and its configuration: {"training", "llama/llama3_70b"}. Where there are several,
// `stages=[…]` says which.
std::pair<std::string, std::string> stage_of(const CommandLine& line) {
  const std::string stages = value_of(line.overrides, "stages");
  std::pair<std::string, std::string> first;
  for (const char* stage : kStages) {
    const std::string config = value_of(line.overrides, stage);
    if (config.find('/') == std::string::npos) continue;
    if (first.first.empty() || stages.find(stage) != std::string::npos) first = {stage, config};
  }
  return first;
}

std::string read_file(const ImportOptions& options, std::initializer_list<std::string> paths, std::string& found) {
  if (options.read)
    for (const std::string& path : paths)
      if (const auto text = options.read(path)) {
        found = path;
        return *text;
      }
  return "";
}

const Flag* flag_of(const CommandLine& line, std::initializer_list<const char*> names) {
  for (const Flag& flag : line.flags)
    if (std::find(names.begin(), names.end(), flag.name) != names.end() && !flag.values.empty() &&
        !flag.values[0].empty())
      return &flag;
  return nullptr;
}

}  // namespace

bool is_launcher_command(const CommandLine& line) {
  return line.program.ends_with("main.py") && !stage_of(line).first.empty();
}

Translation from_launcher_command(const CommandLine& line, const std::string& name, const ImportOptions& options) {
  const auto [stage, config] = stage_of(line);
  const std::string folder = "launcher_scripts/conf/" + stage + "/", file = config + ".yaml";
  const std::string before_it = line.program.substr(0, line.program.size() - std::string("main.py").size());
  std::string found;
  const std::string text = read_file(options, {before_it + "conf/" + stage + "/" + file, folder + file}, found);
  if (found.empty())
    throw input_error(name + ": " + stage + "=" + config + ": expected " + folder + file +
                      " in a folder above the script, got none");
  Yaml yaml = parse_yaml(text, found);
  if (!yaml.root.is_object()) throw input_error(found + ": expected \"key: value\" lines of YAML, got none");
  std::vector<std::string> overrides;
  for (const std::string& word : line.overrides) {
    const std::size_t begin = word.find_first_not_of("+~");
    if (begin != std::string::npos && word.compare(begin, stage.size() + 1, stage + ".") == 0)
      overrides.push_back(word.substr(0, begin) + word.substr(begin + stage.size() + 1));
  }
  apply_overrides(yaml, overrides, name);
  Translation made = from_yaml(std::move(yaml), name, options, found.substr(0, found.size() - file.size()));
  made.notes.insert(made.notes.begin(), "settings are those of " + found +
                                            ", whose lines are meant, and of the words " +
                                            "of the command that begin with " + stage + ".");
  made.notes.insert(made.notes.end(), line.notes.begin(), line.notes.end());
  return made;
}

bool is_titan_command(const CommandLine& line) {
  return flag_of(line, {"--job.config_file", "--job.config-file"}) != nullptr ||
         (line.program.starts_with("torchtitan.") && flag_of(line, {"--config"}) != nullptr);
}

Translation from_titan_command(const CommandLine& line, const std::string& name, const ImportOptions& options) {
  const Flag* file = flag_of(line, {"--job.config_file", "--job.config-file"});
  if (file == nullptr)
    throw input_error(
        name + ": --config " + flag_of(line, {"--config"})->values[0] +
        ": expected --job.config_file with a TOML file, as torchtitan has it up to 0.2.2, got the name of "
        "a configuration in Python (config_registry.py), which is not read");
  std::string found;
  const std::string text = read_file(options, {file->values[0]}, found);
  if (found.empty())
    throw input_error(name + ": " + file->name + ": expected a TOML file in the script's folder or above it, got " +
                      in_quotes(file->values[0]));
  TitanOverrides overrides;
  for (const Flag& flag : line.flags) {
    const std::size_t dot = flag.name.find('.');
    if (dot == std::string::npos || dot < 2 || &flag == file) continue;
    std::string section = flag.name.substr(2, dot - 2), key = flag.name.substr(dot + 1);
    std::replace(section.begin(), section.end(), '-', '_');
    std::replace(key.begin(), key.end(), '-', '_');
    nlohmann::json value = true;  // a switch; "--compile.no-enable" switches off
    if (!flag.values.empty() && !flag.values[0].empty()) {
      value = value_of_word(flag.values[0]);
      if (value == "true" || value == "True") value = true;
      if (value == "false" || value == "False") value = false;
    } else if (key.starts_with("no_")) {
      key = key.substr(3);
      value = false;
    }
    overrides.values.emplace_back(section, key, value);
  }
  if (line.processes || line.nodes) overrides.ranks = line.processes.value_or(8) * line.nodes.value_or(1);
  Translation made = from_torchtitan(text, found, options, overrides);
  made.notes.insert(made.notes.begin(), "settings are those of " + found + " and of the command's flags");
  made.notes.insert(made.notes.end(), line.notes.begin(), line.notes.end());
  return made;
}

}  // namespace stretto
