#include "habits/recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "interchange/bridge_recipes.hpp"
#include "interchange/command_line.hpp"
#include "interchange/recipe.hpp"

namespace stretto::habits {
namespace {

constexpr const char* kLibraryGpu = "h100";  // recipes of the library are in its folder h100

// Reads what toml_of() writes: a section or "key = value" a line.
void read_keys(const std::string& text, Recipe& recipe) {
  std::string section;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('[') || equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals), value = line.substr(equals + 3);
    if (!section.empty())
      recipe.keys[section + "." + key] = value;
    else if (key == "profile")
      recipe.profile = value.substr(1, value.size() - 2);
  }
}

// Returns the recipe as a scenario for `gpus` GPUs, by the reader of commands of run_recipe.py.
Recipe read(const std::string& name, const std::string& gpu, std::int64_t own_gpus, std::int64_t gpus,
            const std::vector<std::string>& overrides) {
  Recipe recipe{name, gpu, own_gpus, "", {}, {}};
  CommandLine line;
  line.program = "run_recipe.py";
  line.flags.push_back({"--recipe", {name}, 0, {}});
  ImportOptions options;
  options.overrides = overrides;
  options.gpus = gpus;
  const Translation read = from_recipe_command(line, "recipe " + name, options);
  read_keys(read.text, recipe);
  for (const std::string& note : read.notes)
    if (note.starts_with("not modelled: ")) recipe.notes.push_back(note);
  return recipe;
}

std::string task_word(const std::string& task) { return task == "lora" ? "peft" : task; }

}  // namespace

std::int64_t Recipe::number(const std::string& key, std::int64_t otherwise) const {
  const auto found = keys.find(key);
  const bool is_number = found != keys.end() && !found->second.empty() && found->second.size() < 12 &&
                         found->second.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::stoll(found->second) : otherwise;
}

std::int64_t Recipe::least_gpus() const {
  const auto size = [&](const char* key, std::int64_t otherwise) {
    return number(std::string("parallel.") + key, otherwise);
  };
  const std::int64_t tp = size("tensor_model_parallel_size", 1), pp = size("pipeline_model_parallel_size", 1),
                     ep = size("expert_model_parallel_size", 1);
  const std::int64_t of_stage = tp * size("context_parallel_size", 1);
  return std::lcm(of_stage, ep > 1 ? ep * size("expert_tensor_parallel_size", tp) : 1) * pp;
}

std::string recipe_gpu(const std::string& platform) {
  for (const PerfRecipe& recipe : perf_recipes())
    if (const std::string of = platform_of_gpu(recipe.key.gpu); !of.empty() && of == platform) return recipe.key.gpu;
  return kLibraryGpu;
}

std::string recipe_precision(std::string precision) {
  std::erase(precision, '_');
  return precision;
}

std::optional<Recipe> recipe_of(const ModelName& model, const std::string& gpu, const std::string& precision,
                                const std::string& task, std::int64_t gpus, bool must_divide) {
  if (model.recipe.empty()) return std::nullopt;
  const PerfKey key{model.recipe, task_word(task), gpu, recipe_precision(precision), ""};
  // That of the number of GPUs or Bridge's default first, then the nearest numbers.
  std::vector<const PerfRecipe*> tried;
  if (const PerfRecipe* first = perf_recipe(key, gpus)) tried.push_back(first);
  if (must_divide) {
    for (const PerfRecipe& recipe : perf_recipes())
      if (recipe.key == key && std::find(tried.begin(), tried.end(), &recipe) == tried.end()) tried.push_back(&recipe);
    if (!tried.empty())
      std::stable_sort(tried.begin() + 1, tried.end(), [&](const PerfRecipe* one, const PerfRecipe* other) {
        return std::abs(one->gpus - gpus) < std::abs(other->gpus - gpus);
      });
  }
  std::optional<Recipe> first;
  for (const PerfRecipe* one : tried) {
    Recipe recipe = read(one->name, one->key.gpu, one->gpus, 0, {});
    if (!must_divide || gpus % recipe.least_gpus() == 0) return recipe;
    if (!first) first = std::move(recipe);
  }
  if (first || gpu != kLibraryGpu || precision != "bf16") return first;
  const std::string name = model.recipe + "_" + task_word(task);
  const std::optional<BridgeRecipe> of_library = bridge_recipe(name, task == "lora");
  // bridge_recipe() finds names with more words too.
  if (!of_library || !of_library->name.starts_with(name) || !not_modelled_by_name(name).empty()) return std::nullopt;
  return read(of_library->name, kLibraryGpu, of_library->gpus, 0, {});
}

Recipe shipped_recipe(const PerfRecipe& recipe) { return read(recipe.name, recipe.key.gpu, recipe.gpus, 0, {}); }

std::string text_of(const Recipe& recipe, const std::string& platform) {
  std::string text = fmt::format("name = \"{}\"\nplatform = \"{}\"\nprofile = \"{}\"\n", recipe.name, platform,
                                 recipe.profile),
              section;
  for (const auto& [key, value] : recipe.keys) {
    const std::size_t dot = key.find('.');
    if (key.substr(0, dot) != section) text += fmt::format("\n[{}]\n", section = key.substr(0, dot));
    text += fmt::format("{} = {}\n", key.substr(dot + 1), value);
  }
  return text;
}

Recipe scaled(const Recipe& recipe, std::int64_t gpus, const std::vector<std::string>& overrides) {
  Recipe own = read(recipe.name, recipe.gpu, recipe.gpus, 0, overrides);
  const std::int64_t least = own.least_gpus();
  if (gpus % least != 0) {
    const std::int64_t below = gpus / least * least;
    throw input_error(fmt::format(
        "--gpus {}: recipe {} is for multiples of {} GPUs; the nearest {} {}{}; --set parallel.… gives another layout",
        gpus, recipe.name, least, below > 0 ? "are" : "is", below > 0 ? fmt::format("{} and ", below) : "",
        below + least));
  }
  const auto says = [&](const char* key) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const std::string& one) { return one.starts_with(std::string(key) + "="); });
  };
  std::vector<std::string> all = overrides;
  const char* kBatch = "training.global_batch_size";
  const std::int64_t of_replica = own.number("parallel.tensor_model_parallel_size", 1) *
                                  own.number("parallel.context_parallel_size", 1) *
                                  own.number("parallel.pipeline_model_parallel_size", 1);
  const std::int64_t then = std::max<std::int64_t>(1, recipe.gpus / of_replica), now = gpus / of_replica,
                     batch = own.number(kBatch, 1);
  if (!says(kBatch)) {
    // As many sequences a replica as in the recipe (Megatron-Bridge, scripts/common/benchmark_parallelism.py).
    const std::int64_t micro = own.number("training.micro_batch_size", 1);
    const std::int64_t each = std::max(micro, batch / then / micro * micro);
    all.push_back(fmt::format("{}={}", kBatch, each * now));
  }
  return read(recipe.name, recipe.gpu, recipe.gpus, gpus, all);
}

}  // namespace stretto::habits
