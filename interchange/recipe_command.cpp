#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.hpp"
#include "interchange/bridge_recipes.hpp"
#include "interchange/command_line.hpp"
#include "interchange/megatron.hpp"
#include "interchange/perf_recipes.hpp"
#include "interchange/recipe.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

const Flag* recipe_flag(const CommandLine& line) {
  for (const Flag& flag : line.flags)
    if (flag.name == "--recipe" || flag.name == "--recipe-name") return &flag;
  return nullptr;
}

// Returns how many GPUs Megatron-Bridge's scripts/training/setup_experiment.py starts (train.sh hands on to it); 0 for
// other programs.
std::int64_t gpus_of_launcher(const CommandLine& line) {
  if (!line.program.ends_with("training/train.sh") && !line.program.ends_with("setup_experiment.py")) return 0;
  std::int64_t nodes = 1, gpus = 0;
  for (const Flag& flag : line.flags) {
    if (flag.values.empty()) continue;
    const Json number = value_of_word(flag.values[0]);
    if (!number.is_number_integer() || number < 1 || number > (1 << 20)) continue;
    if (flag.name == "--nodes") nodes = number;
    if (flag.name == "--gpus-per-node" || flag.name == "--gpus_per_node") gpus = number;
  }
  return nodes * gpus;
}

}  // namespace

void apply_overrides(Yaml& yaml, const std::vector<std::string>& overrides, const std::string& name) {
  for (const std::string& word : overrides) {
    const std::size_t equal = word.find('=');
    const bool removes = word.starts_with('~');
    if (equal == 0 || (!removes && (equal == std::string::npos || equal + 1 == word.size()))) continue;
    std::string path = word.substr(0, equal);
    path.erase(0, path.find_first_not_of("+~"));
    yaml.lines.erase(path);
    Json* node = &yaml.root;
    for (std::size_t dot; (dot = path.find('.')) != std::string::npos; path.erase(0, dot + 1)) {
      Json& inner = (*node)[path.substr(0, dot)];
      if (!inner.is_object()) inner = Json::object();
      node = &inner;
    }
    if (path.empty()) continue;
    if (removes) {
      node->erase(path);
      continue;
    }
    const std::string value = word.substr(equal + 1);
    try {
      (*node)[path] = parse_yaml("x: " + value, name).root["x"];
    } catch (const Error&) {  // a duration such as "0:30:00"
      (*node)[path] = value;
    }
  }
}

bool is_recipe_command(const CommandLine& line) { return recipe_flag(line) != nullptr; }

std::optional<CommandLine> recipe_command_of_program(const CommandLine& line, const ImportOptions& options) {
  const auto text = options.read && line.program.ends_with(".py") ? options.read(line.program) : std::nullopt;
  if (!text) return std::nullopt;
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  CommandLine made = line;
  made.overrides.clear();
  std::set<std::string> recipes;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    const std::string row = text->substr(at, end - at);
    at = end + 1;
    const std::size_t begin = std::min(row.find_first_not_of(" \t"), row.size());
    if (begin == row.size() || row[begin] == '#') continue;
    for (std::size_t call = 0; (call = row.find("_config(", call)) != std::string::npos; ++call) {
      std::size_t first = call;
      while (first > 0 && is_name(row[first - 1]) && row[first - 1] != '.') --first;
      const std::string name = row.substr(first, call - first);
      if (bridge_recipe(name) && !row.substr(begin).starts_with("def ")) recipes.insert(name);
    }
    // An assignment such as "config.train.train_iters = 10" changes the recipe.
    const std::size_t equal = row.find(" = ", begin), dot = row.find('.', begin);
    const std::string variable = row.substr(begin, std::min(dot, row.size()) - begin);
    if ((variable == "config" || variable == "cfg") && equal != std::string::npos && dot < equal &&
        std::all_of(row.begin() + static_cast<std::ptrdiff_t>(dot), row.begin() + static_cast<std::ptrdiff_t>(equal),
                    is_name))
      made.overrides.push_back(row.substr(dot + 1, equal - dot - 1) + "=" +
                               row.substr(equal + 3, row.find(" #", equal) - equal - 3));
  }
  if (recipes.size() != 1) return std::nullopt;
  made.overrides.insert(made.overrides.end(), line.overrides.begin(), line.overrides.end());
  made.flags.push_back({"--recipe", {*recipes.begin() + "_config"}, 0, {}});
  made.notes.push_back("the recipe and its changes are those of " + line.program);
  return made;
}

Translation from_recipe_command(const CommandLine& line, const std::string& name, const ImportOptions& options) {
  const Flag& flag = *recipe_flag(line);
  const std::string recipe = flag.values.empty() ? "" : flag.values[0];
  Settings refused;
  refused.name = name;
  for (const std::string& noun : not_modelled_by_name(recipe))
    refused.refused.emplace(noun, Assessment{"--recipe " + recipe, flag.line, ""});
  for (const Flag& other : line.flags)
    if (other.name.starts_with("--step") && !other.values.empty() && other.values[0].find("vl") != std::string::npos)
      refused.refused.emplace("image encoders", Assessment{other.name + " " + other.values[0], other.line, ""});
  refuse(refused, options);
  if (recipe.empty())
    throw input_error(name + ": " + flag.name + ": expected the name of a recipe, got none" +
                      (flag.unknown.empty() ? ""
                                            : "; nothing sets $" + *flag.unknown.begin() + ", --env " +
                                                  *flag.unknown.begin() + "=NAME does"));
  Yaml yaml;
  yaml.root = Json::object();
  apply_overrides(yaml, line.overrides, name);
  require_sections(yaml.root, name);
  const std::int64_t gpus = options.gpus > 0 ? options.gpus : gpus_of_launcher(line);
  if (const PerfRecipe* measured = perf_recipe_by_name(recipe);
      measured != nullptr && gpus > 0 && gpus_of_launcher(line) > 0 && measured->gpus != gpus) {
    Json all = settings_of(*measured).settings;
    all.merge_patch(yaml.root);
    scale_batch(all, *measured, gpus, name);
    yaml.root["train"]["global_batch_size"] = all["train"]["global_batch_size"];
  }
  yaml.root["run"] = {{"name", recipe}};
  Settings settings = settings_of_recipe(std::move(yaml), name, options);
  if (!bridge_recipe(recipe))
    settings.notes.push_back("batch, parallelism and overlap are those of the overrides and of profile " +
                             settings.profile + ": the recipe " + recipe + " itself is a program");
  settings.notes.insert(settings.notes.end(), line.notes.begin(), line.notes.end());
  if (gpus_of_launcher(line) > 0) {
    settings.ranks = gpus_of_launcher(line);
    settings.ranks_from = "--nodes and --gpus-per-node";
  } else if (line.processes || line.nodes) {
    settings.ranks = line.processes.value_or(8) * line.nodes.value_or(1);
    settings.ranks_from = "processes of a node and nodes";
  }
  return scenario_of(std::move(settings), options);
}

}  // namespace stretto
