#include "interchange/recipe.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/bridge_recipes.hpp"
#include "interchange/command_line.hpp"
#include "interchange/formats.hpp"
#include "interchange/keyed_document.hpp"
#include "interchange/megatron.hpp"
#include "interchange/megatron_flags.hpp"
#include "interchange/model_shapes.hpp"
#include "interchange/perf_recipes.hpp"
#include "interchange/primus.hpp"
#include "interchange/recipe_settings.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// NeMo's names for a scenario's keys, in addition to the spellings that a scenario accepts.
struct Alias {
  const char* name;
  const char* key;
};
constexpr Alias kAliases[] = {
    {"bias", "model.add_bias_linear"},
    {"max_steps", "training.train_iters"},
    {"qkv_bias", "model.add_qkv_bias"},
    {"seq_len_interpolation_factor", "model.rotary_seq_len_interpolation_factor"},
};

class Recipe {
 public:
  Recipe(Yaml yaml, const std::string& name, const ImportOptions& options, std::string folder = "")
      : options_(options), yaml_(std::move(yaml)), root_(yaml_.root), folder_(std::move(folder)) {
    recipe_.settings.name = name;
    recipe_.settings.profile = "nemo-dgxc";
    recipe_.settings.vocabulary_key = "vocab_size";
    recipe_.lines = yaml_.lines;
    recipe_.facts.is_nemo = root_.contains("trainer");
  }

  Settings run() {
    take_recipe();
    take_defaults();
    resolve_references(root_, recipe_.settings.name);
    visit(root_, "");
    refuse(recipe_.settings, options_);
    finish();
    return std::move(recipe_.settings);
  }

 private:
  void near(const std::string& path, const Json& value, const std::string& effect) {
    recipe_.near(path, value, effect);
  }
  void refuse_here(const std::string& noun, const std::string& path) { recipe_.refuse(noun, path); }

  std::string stem() const { return std::filesystem::path(recipe_.settings.name).stem().string(); }
  // Returns the name of the recipe that the settings change: `run.name`, else the file's name.
  std::string recipe_name() const {
    const Json* node = &root_;
    for (const char* key : {"run", "name"})
      node = node != nullptr && node->is_object() && node->contains(key) ? &(*node)[key] : nullptr;
    return node != nullptr && node->is_string() ? node->get<std::string>() : stem();
  }

  // Returns the name of the model that NeMo's fine-tuning reads from a checkpoint, by run.model_train_name and the size
  // in run.name: "llama2_13b".
  std::string checkpoint_name() const {
    if (!root_.contains("run") || !root_["run"].is_object() || !root_["run"].contains("model_train_name")) return "";
    const Json& family = root_["run"]["model_train_name"];
    std::string size;
    for (const char c : recipe_name() + "_") {
      if (std::isdigit(static_cast<unsigned char>(c)) != 0)
        size += c;
      else if (c == 'b' && !size.empty())
        return family.is_string() ? family.get<std::string>() + "_" + size + "b" : "";
      else
        size.clear();
    }
    return "";
  }

  // Completes Megatron-Bridge's YAML and overrides, which change a recipe, by the recipe's own settings.
  void take_recipe() {
    const bool has_sizes = root_.contains("model") && root_["model"].is_object() &&
                           root_["model"].contains("num_layers") && root_["model"].contains("hidden_size");
    // With all sizes a document is whole, unless a command names a recipe whose sizes it changes.
    if (root_.contains("trainer") || (has_sizes && !root_.contains("run"))) return;
    for (const std::string& noun : not_modelled_by_name(recipe_name())) refuse_here(noun, recipe_name());
    // With --set training.precision, a recipe in fp8 is predicted in the precision that it says.
    if (recipe_.settings.refused.size() > recipe_.settings.refused.count("fp8")) return;
    std::optional<BridgeRecipe> recipe = bridge_recipe(recipe_name(), root_.contains("peft"));
    if (!recipe) return;
    if (!recipe->preset.empty()) recipe_.settings.values["model.preset"] = recipe->preset;
    if (!recipe->gpu.empty()) take_gpu(recipe->gpu);
    // The user's tokenizer replaces the recipe's vocabulary.
    if (root_.contains("tokenizer")) recipe->settings.erase("tokenizer");
    merge(recipe->settings, root_);
    root_ = std::move(recipe->settings);
    recipe_.facts.is_recipe = true;
    recipe_.settings.ranks = recipe->gpus;
    recipe_.settings.ranks_from = "the recipe's name";
    recipe_.settings.notes.push_back("what nothing else says is as in Megatron-Bridge's recipe " + recipe->name);
  }
  // A performance recipe is of a GPU, and of measured steps.
  void take_gpu(const std::string& gpu) {
    recipe_.settings.profile = "megatron-bridge";
    recipe_.settings.platform = platform_of_gpu(gpu);
    if (recipe_.settings.platform.empty())
      recipe_.settings.notes.push_back("there is no platform of " + gpu + ": --platform says which GPU is meant");
  }
  static void merge(Json& into, const Json& from) {
    for (const auto& [key, value] : from.items())
      if (value.is_object() && into.contains(key) && into[key].is_object())
        merge(into[key], value);
      else
        into[key] = value;
  }

  // Takes "optional tp_overlap@model.ub_tp_comm_overlap_cfg: ub_cfg_…": a table of products in a file of its own.
  void take_defaults() {
    if (!root_.contains("defaults") || !root_["defaults"].is_array() || !root_.contains("model")) return;
    for (const Json& one : root_["defaults"]) {
      if (!one.is_object()) continue;
      for (const auto& [key, file] : one.items()) {
        const std::size_t at = key.find('@');
        if (at == std::string::npos || !file.is_string() || file == "" || !root_["model"].is_object()) continue;
        const std::string group = key.substr(key.rfind(' ', at) + 1, at - key.rfind(' ', at) - 1);
        const std::string key_of_model = key.substr(key.rfind('.') + 1);
        if (!key_of_model.ends_with("tp_comm_overlap_cfg")) continue;
        const std::string path = folder_ + group + "/" + file.get<std::string>() + ".yaml";
        const auto text = options_.read ? options_.read(path) : std::nullopt;
        if (text)
          root_["model"][key_of_model] = parse_yaml(*text, path).root;
        else
          near("defaults." + group, file, "its file is not there: " + std::string(kDefaultProducts));
      }
    }
  }

  void visit(const Json& node, const std::string& path) {
    for (const auto& [key, value] : node.items()) {
      const std::string here = path.empty() ? key : path + "." + key;
      const Assessment setting{here, recipe_.line_of(here), ""};
      // Sections of other models, and sections that do not affect training.
      if (key == "teacher" || key == "kd_config" || key == "exp_manager" || key == "hydra" || key == "defaults" ||
          key == "run")
        continue;
      if (key == "encoder" && value.is_object() && node.contains("decoder")) refuse_here("encoders", here);
      if (key == "bert_binary_head" || key == "bert_type") refuse_here("encoders", here);
      if (key == "retro" && value.is_object()) refuse_here("retrieval", here);
      if (key == "mm_cfg" || key == "vision_pretraining_type" || key == "patch_dim")
        refuse_here("image encoders", here);
      if ((key == "vision" || key == "unet_config" || key == "vision_transformer_config") && value.is_object())
        refuse_here("image encoders", here);
      if (key == "tokenizer" && value.is_object()) {
        take_recipe_tokenizer(recipe_, value);
        continue;
      }
      if (key == "comm_overlap" && value.is_object()) recipe_.facts.has_comm_overlap = true;
      if (key == "peft" && !value.is_null()) take_adapters(here, value);
      if (key.ends_with("tp_comm_overlap_cfg") && value.is_object()) {
        recipe_.settings.values["overlap.tp_comm_overlap_cfg"] = overlaps_of_products(value);
        recipe_.settings.origins["overlap.tp_comm_overlap_cfg"] = setting;
        recipe_.settings.taken.push_back(here);
        continue;
      }
      if (key == "recompute_modules" && value.is_array()) {
        std::vector<std::string> modules;
        for (const Json& one : value)
          if (one.is_string()) modules.push_back(one);
        recipe_.settings.take_from(setting, [&] {
          for (const auto& [module, effect] : recipe_.settings.take_recompute_modules(modules))
            near(here, module, effect);
        });
        continue;
      }
      if (value.is_object() && !is_near_key(recipe_, key, here, value)) {
        visit(value, here);
        continue;
      }
      if (!value.is_null() && !value.is_object())
        recipe_.settings.take_from(setting, [&, &key = key, &value = value] { leaf(key, here, value); });
    }
  }

  void take_adapters(const std::string& path, const Json& value) {
    if (value.is_object() && value.contains("peft_scheme") && !value["peft_scheme"].is_string()) return;
    recipe_.settings.values["training.frozen_base"] = true;
    near(path, value, "the passes of the frozen model are predicted, without those of the adapters");
  }

  void leaf(const std::string& key, const std::string& path, const Json& value) {
    if (take_recipe_key(recipe_, key, path, value)) return recipe_.settings.taken.push_back(path);
    if (is_near_key(recipe_, key, path, value)) return;
    for (const MegatronRow& row : megatron_rows()) {
      bool is_it = row.name() == key;
      for (const std::string& other : row.spellings) is_it = is_it || key == other;
      for (const Alias& alias : kAliases) is_it = is_it || (key == alias.name && row.key == alias.key);
      if (!is_it || row.key == "parallel.order" || row.key.find("rope_scaling_") != std::string::npos) continue;
      put(row, path, value);
      return recipe_.settings.taken.push_back(path);
    }
    (is_idle_key(key, path) ? recipe_.settings.ignored : recipe_.settings.unknown).push_back(path);
  }

  void put(const MegatronRow& row, const std::string& path, const Json& value) {
    auto& values = recipe_.settings.values;
    Json made = value;
    if (made.is_string()) {
      for (const auto& [word, ours] : row.words)
        if (made == word) made = ours;
      // 1e-5 without a point is a string in YAML.
      if (row.words.empty()) made = value_of_word(made.get<std::string>());
    }
    if (row.key == "model.sliding_window") {  // keys before the own one, and after it
      const bool is_pair = made.is_array() && made.size() == 2 && made[0].is_number_integer();
      if (!is_pair)
        throw input_error(recipe_.settings.name + ":" + std::to_string(recipe_.line_of(path)) + ": " + path +
                          ": expected two numbers, of keys before and after the own one, got " + value.dump());
      const auto left = made[0].get<std::int64_t>();
      made = left < 0 ? 0 : std::min<std::int64_t>(left, 1 << 24) + 1;
    }
    if (row.key == "parallel.virtual_pipeline_model_parallel_size" && made == 1) return;
    if ((row.key == "overlap.bucket_size" || row.key == "overlap.wgrad_deferral_limit") &&
        !(made.is_number_integer() && made > 0)) {
      if (row.key == "overlap.bucket_size")
        throw input_error(recipe_.settings.name + ":" + std::to_string(recipe_.line_of(path)) + ": " + path +
                          ": expected a whole number of at least 1, or null, got " + value.dump());
      return;
    }
    // Two sections may have one key, as with seq_length; the model's counts.
    if (values.contains(row.key) && !path.starts_with("model") && !path.starts_with("mixed_precision")) return;
    values[row.key] = made;
  }

  void finish() {
    Settings& settings = recipe_.settings;
    const bool has_sizes =
        settings.values.contains("model.num_layers") && settings.values.contains("model.hidden_size");
    settings.vocabulary_hints += recipe_name() + "\n" + stem() + "\n";
    const bool is_recipe = recipe_.facts.is_recipe;
    const bool is_named = recipe_name() != stem() || is_recipe;
    // Sizes that a recipe's command changes leave the others as they are.
    if (is_recipe && has_sizes && !settings.values.contains("model.preset")) add_shape_by_name(recipe_name(), settings);
    if (!has_sizes && settings.refused.empty()) {
      if ((is_named && add_shape_by_name(recipe_name(), settings)) || add_shape_by_name(checkpoint_name(), settings)) {
        if (!is_recipe)
          settings.notes.push_back(
              "the sizes of the model are those that its name says; the recipe or checkpoint that has them is not "
              "here");
      } else if (Settings named = settings; !is_recipe && add_shape_by_name(stem(), named)) {
        settings.file_says = "the sizes of the model that the file's name says are " + sizes_of(named);
      }
    }
    complete_recipe(recipe_, root_, has_sizes || is_recipe || recipe_.facts.is_nemo);
  }

  // Returns the sizes as options of the command: a file's name may be anything, so a person confirms what it says.
  static std::string sizes_of(const Settings& settings) {
    std::string text;
    for (const MegatronRow& row : megatron_rows())
      if (const Json* value = settings.find(row.key); value != nullptr && row.key.starts_with("model."))
        text += " --set " + row.key + "=" + (value->is_string() ? value->get<std::string>() : value->dump());
    return text.empty() ? text : text.substr(1);
  }

  const ImportOptions& options_;
  Yaml yaml_;
  Json& root_;
  std::string folder_;
  RecipeSettings recipe_;
};

}  // namespace

Json overlaps_of_products(const Json& table) {
  Json made = Json::object();
  for (const auto& [product, value] : table.items()) {
    if (!value.is_object() || !value.contains("method") || !value["method"].is_string()) continue;
    const Json& method = value["method"];
    Json one = {{"method", method}};
    if (method == "ring_exchange" && value.contains("aggregate"))
      if (const Json& aggregate = value["aggregate"]; aggregate == true || aggregate == 1) one["aggregate"] = true;
    if (method == "pipeline" && value.contains("num_splits") && value["num_splits"].is_number_integer())
      one["num_splits"] = value["num_splits"];
    made[product] = one;
  }
  return made;
}

Translation from_recipe(std::string_view text, const std::string& name, const ImportOptions& options) {
  Yaml yaml;
  try {
    yaml = parse_yaml(text, name);
  } catch (const Error&) {
    refuse_unparsed(text, name);
    throw;
  }
  if (yaml.root.is_object() && yaml.root.contains("MODEL_ARGS") && yaml.root["MODEL_ARGS"].is_object())
    return from_megatron_flags(command_line_of_test(yaml, name, options.environment), name, options);
  if (const auto primus = primus_command(yaml.root, name, options)) return from_megatron_flags(*primus, name, options);
  if (auto made = from_keyed_document(yaml, name, options)) return std::move(*made);
  if (kind_of_document(yaml.root) == DocumentKind::other) refuse_unparsed(text, name);
  require_document(yaml.root, name);
  // A file that has only overlap settings describes no model.
  if (kind_of_document(yaml.root) == DocumentKind::overlap) return from_bridge(text, name);
  return from_yaml(std::move(yaml), name, options, "");
}

Settings settings_of_recipe(Yaml yaml, const std::string& name, const ImportOptions& options) {
  return Recipe(std::move(yaml), name, options).run();
}

Translation from_yaml(Yaml yaml, const std::string& name, const ImportOptions& options, const std::string& folder) {
  return scenario_of(Recipe(std::move(yaml), name, options, folder).run(), options);
}

}  // namespace stretto
