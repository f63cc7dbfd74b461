#include "interchange/benchmark_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/benchmark_options.hpp"
#include "interchange/benchmark_overrides.hpp"
#include "interchange/command_line.hpp"
#include "interchange/perf_recipes.hpp"
#include "interchange/recipe.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string joined(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

class Benchmark {
 public:
  Benchmark(const CommandLine& line, const std::string& name, const ImportOptions& options)
      : line_(line), name_(name), options_(options), given_(line, name) {}

  Settings run() {
    require();
    find_recipe();
    Yaml yaml;
    yaml.root = settings_of(*recipe_).settings;
    apply_overrides(yaml, given_.overrides(), name_);
    require_sections(yaml.root, name_);
    const auto found = line_.exports.find("CUDA_DEVICE_MAX_CONNECTIONS");
    apply_benchmark_options(yaml.root, given_,
                            {.recipe = *recipe_,
                             .gpus = gpus_,
                             .name = name_,
                             .is_checked = !is_overridden("parallel.") && !is_overridden("training."),
                             .connections = found == line_.exports.end() ? "" : found->second});
    yaml.root["run"] = {{"name", recipe_->name}};
    Settings settings = settings_of_recipe(std::move(yaml), name_, options_);
    return describe(std::move(settings));
  }

 private:
  bool is_overridden(const std::string& prefix) const {
    return std::any_of(options_.overrides.begin(), options_.overrides.end(),
                       [&](const std::string& one) { return one.starts_with(prefix); });
  }

  // ---- which recipe ----

  void require() {
    std::vector<std::string> missing, variables;
    for (const auto& [option, spelling] : {std::pair{"model_recipe_name", "-mr"}, {"num_gpus", "-ng"}, {"gpu", "-g"}}) {
      const bool has = given_.has(option) ||
                       (option == std::string_view("model_recipe_name") && given_.has("model_size")) ||
                       (option == std::string_view("num_gpus") && options_.gpus > 0);
      if (has) continue;
      missing.push_back(spelling);
      if (const auto found = given_.unset().find(option); found != given_.unset().end())
        variables.push_back("--env " + found->second + "=VALUE");
    }
    if (!missing.empty())
      throw input_error(fmt::format("{}: {}: expected {}, got none{}", name_, line_.program, fmt::join(missing, ", "),
                                    variables.empty() ? "" : fmt::format("; give {}", fmt::join(variables, ", "))));
    if (given_.has("use_recipes"))
      throw input_error(name_ + ": --use_recipes: expected a performance recipe; a recipe of the library is taken as " +
                        "run_recipe.py --recipe NAME_config");
    gpus_ = options_.gpus > 0 ? options_.gpus : *given_.count("num_gpus");
  }

  std::string one_of(const char* option, const char* otherwise, const std::set<std::string>& known) const {
    const std::string word = lower(given_.text(option).value_or(otherwise));
    if (!known.contains(word)) given_.fail(option, "expected one of " + joined(known));
    return word;
  }

  void find_recipe() {
    PerfKey key;
    key.model = lower(
        given_.text("model_recipe_name")
            .value_or(given_.text("model_family_name").value_or("") + "_" + given_.text("model_size").value_or("")));
    std::set<std::string> models, gpus;
    for (const PerfRecipe& recipe : perf_recipes()) {
      models.insert(recipe.key.model);
      gpus.insert(recipe.key.gpu);
    }
    const char* model_option = given_.has("model_recipe_name") ? "model_recipe_name" : "model_size";
    Settings refused;
    refused.name = name_;
    if (!models.contains(key.model))
      for (const std::string& noun : not_modelled_by_name(key.model + "_"))
        refused.refused.emplace(noun, Assessment{given_.written(model_option), 0, ""});
    key.gpu = one_of("gpu", "", gpus);
    if (platform_of_gpu(key.gpu).empty() && !is_overridden("platform="))
      refused.refused.emplace("GPU " + lower(key.gpu), Assessment{given_.written("gpu"), 0, ""});
    refuse(refused, options_);
    if (!models.contains(key.model)) {
      const std::string nearest = nearest_spelling(key.model, {models.begin(), models.end()});
      given_.fail(model_option,
                  "expected one of " + joined(models) + (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
    }
    key.task = one_of("task", "pretrain", {"pretrain", "sft", "peft"});
    key.precision = one_of("compute_dtype", "bf16", {"bf16", "fp8_cs", "fp8_mx", "fp8_sc", "nvfp4"});
    std::erase(key.precision, '_');
    key.variant = lower(given_.text("config_variant").value_or(""));
    if (key.variant == "v1" || key.variant == "v2") key.variant.clear();
    recipe_ = perf_recipe(key, gpus_);
    if (recipe_ != nullptr) return;
    throw input_error(
        fmt::format("{}: expected a performance recipe of Megatron-Bridge, and there is none of {} {} on {} in {}{}; "
                    "the nearest is {}",
                    name_, key.model, key.task, key.gpu, key.precision,
                    key.variant.empty() ? "" : " (" + key.variant + ")", nearest_perf_recipe(key, gpus_).name));
  }

  // ---- what is said ----

  Settings describe(Settings settings) {
    for (const auto& [option, key] : {std::pair{"hidden_size", "model.hidden_size"},
                                      {"num_layers", "model.num_layers"},
                                      {"num_moe_experts", "model.num_moe_experts"}})
      if (const auto size = given_.count(option)) settings.values[key] = *size;
    take_dense_layers(settings);
    if (given_.text("data") == "squad_packed")
      settings.approximated.push_back(
          {given_.written("data"), 0, "a sequence is one document, whose tokens attend to all before them"});
    if (recipe_->key.task == "peft" && settings.whole("parallel.pipeline_model_parallel_size", 1) > 1 &&
        !settings.values.contains("overlap.fsdp_comm_overlap"))
      settings.values["parallel.order"] = "tp-cp-ep-pp-dp";  // use_tp_pp_dp_mapping
    settings.ranks = gpus_;
    settings.ranks_from = "-ng";
    std::vector<std::string> idle = given_.ignored();
    for (const std::string& word : given_.overrides()) {
      std::string path = word.substr(0, word.find('='));
      path.erase(0, std::min(path.find_first_not_of("+~"), path.size()));
      if (std::find(settings.ignored.begin(), settings.ignored.end(), path) != settings.ignored.end())
        idle.push_back(path);
    }
    settings.ignored = std::move(idle);
    settings.taken = given_.taken();
    for (const std::string& word : given_.overrides()) {
      const std::string path = word.substr(0, word.find('='));
      if (std::find(settings.ignored.begin(), settings.ignored.end(), path) == settings.ignored.end())
        settings.taken.push_back(path);
    }
    for (const auto& [option, variable] : given_.unset())
      settings.notes.push_back(
          fmt::format("--{}: nothing sets ${}: it is as if it were absent; --env {}=VALUE says otherwise", option,
                      variable, variable));
    settings.notes.emplace_back("recipes are those of August 2026 (067f987d); earlier releases have other settings");
    settings.notes.insert(settings.notes.end(), line_.notes.begin(), line_.notes.end());
    return settings;
  }

  void take_dense_layers(Settings& settings) const {
    const auto dense = given_.text("first_k_dense_replace");
    if (settings_of(*recipe_).preset.empty() || (!dense && !given_.has("num_layers"))) return;
    const bool is_kimi = recipe_->key.model == "kimi_k2", is_deepseek = recipe_->key.model == "deepseek_v3";
    const std::int64_t first = dense && *dense != "0" ? *given_.count("first_k_dense_replace")
                               : dense                ? 0
                               : is_kimi              ? 1
                               : is_deepseek          ? 3
                                                      : 0;
    const std::int64_t layers = given_.count("num_layers").value_or(is_kimi || is_deepseek ? 61 : 0);
    if (layers <= 0) return;
    Json kinds = Json::array();
    for (std::int64_t layer = 0; layer < std::min<std::int64_t>(layers, 1 << 12); ++layer)
      kinds.push_back(layer < first ? 0 : 1);
    settings.values["model.moe_layer_freq"] = std::move(kinds);
  }

  const CommandLine& line_;
  const std::string& name_;
  const ImportOptions& options_;
  BenchmarkOptions given_;
  std::int64_t gpus_ = 1;
  const PerfRecipe* recipe_ = nullptr;
};

}  // namespace

bool is_benchmark_program(const std::string& program) {
  return program.ends_with("setup_experiment.py") || program.ends_with("performance/run_script.py") ||
         program == "run_script.py";
}

bool is_benchmark_command(const CommandLine& line) {
  return is_benchmark_program(line.program) &&
         std::none_of(line.flags.begin(), line.flags.end(), [](const Flag& flag) { return flag.name == "--recipe"; });
}

Translation from_benchmark_command(const CommandLine& line, const std::string& name, const ImportOptions& options) {
  return scenario_of(Benchmark(line, name, options).run(), options);
}

}  // namespace stretto
