#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interchange/imported.hpp"

namespace stretto {

// Parts of the reader of recipes (recipe.hpp), which reads one key after the other and then says what absent ones mean.

// Facts that keys say which are no key of a scenario, until all keys are read.
struct RecipeFacts {
  nlohmann::json nodes, devices, bucket_mb;
  bool is_nemo = false;    // of NeMo's launcher, whose files have a trainer
  bool is_recipe = false;  // completed by a recipe of Megatron-Bridge
  bool is_fsdp = false, has_comm_overlap = false, overrides_vocabulary = false, is_apex = false, has_graphs = false;
  std::optional<bool> mixed_reduces_in_fp32, fsdp_reduces_in_fp32;
  std::string fsdp_strategy;
  bool is_fp8 = false;                 // NeMo's switch
  std::string nemo_format = "hybrid";  // with it
  std::vector<std::string> graph_modules;
};

// The settings that come out of a recipe, with what is said about its keys, each by its path ("model.fp8") and line.
struct RecipeSettings {
  Settings settings;
  RecipeFacts facts;
  std::map<std::string, int> lines;  // [path]

  int line_of(const std::string& path) const {
    const auto found = lines.find(path);
    return found == lines.end() ? 0 : found->second;
  }
  void near(const std::string& path, const nlohmann::json& value, const std::string& effect);
  void refuse(const std::string& noun, const std::string& path) {
    settings.refused.emplace(noun, Assessment{path, line_of(path), ""});
  }
};

// recipe_keys.cpp: takes a key that becomes something else than a value of a scenario's key. Returns false for
// others.
bool take_recipe_key(RecipeSettings& recipe, const std::string& key, const std::string& path,
                     const nlohmann::json& value);
// Takes the section `tokenizer`, which says the vocabulary.
void take_recipe_tokenizer(RecipeSettings& recipe, const nlohmann::json& tokenizer);
// near_keys.cpp: returns whether it is a key that is not modelled and has little effect, and notes that unless it has
// none.
bool is_near_key(RecipeSettings& recipe, const std::string& key, const std::string& path, const nlohmann::json& value);
// Returns whether a key that no table of settings has acts on files, logs, checks or the course of training alone: by
// its section or name, or as Megatron-LM's flag of that name.
bool is_idle_key(const std::string& key, const std::string& path);
inline constexpr const char* kDefaultProducts =
    "each product's method is the default; [overlap] tp_comm_overlap_cfg says the same";

// recipe_defaults.cpp: sets what absent keys mean. `root` has all keys; `is_whole`: it is a whole configuration.
void complete_recipe(RecipeSettings& recipe, const nlohmann::json& root, bool is_whole);

// functional_tests.cpp: returns MODEL_ARGS and ENV_VARS of Megatron-LM's functional tests as the command line that they
// become.
struct CommandLine;
struct Yaml;
// `environment` has the values of ${NAME}.
CommandLine command_line_of_test(const Yaml& yaml, const std::string& name,
                                 const std::map<std::string, std::string>& environment);

}  // namespace stretto
