#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interchange/imported.hpp"

namespace stretto {

// Reads a scenario from YAML: a configuration of NeMo (of NeMo-Framework-Launcher 24.09, or of NeMo 2), a
// ConfigContainer of Megatron-Bridge (August 2026), a `model_config.yaml` of Megatron-LM's functional tests, or fields
// of CommOverlapConfig alone. The sections of the file decide its kind. Keys are found by their names in any section.
// Throws Error(input) as parse_yaml() and scenario_of().
Translation from_recipe(std::string_view text, const std::string& name, const ImportOptions& options = {});

// A command line of Megatron-Bridge's run_recipe.py: `--recipe NAME` and overrides, "model.seq_length=4096". The
// recipe's name determines the sizes. Throws as from_recipe().
struct CommandLine;
bool is_recipe_command(const CommandLine& line);
// Returns the command as one of run_recipe.py where its program, which `options` reads, is Python that calls one known
// recipe (bridge_recipes.hpp) and changes it by "config.train.train_iters = 10"; nothing for other programs.
std::optional<CommandLine> recipe_command_of_program(const CommandLine& line, const ImportOptions& options);
Translation from_recipe_command(const CommandLine& line, const std::string& name, const ImportOptions& options);

// Reads the settings of parsed YAML.
struct Yaml;
Settings settings_of_recipe(Yaml yaml, const std::string& name, const ImportOptions& options);
// Reads a scenario from parsed YAML. `folder` has the launcher's configurations of the stage, "" for the folder of
// `name`.
Translation from_yaml(Yaml yaml, const std::string& name, const ImportOptions& options, const std::string& folder);
// Sets "key.of.it=value" in the YAML, "+key" and "++key" too; "~key" removes a key. `name` is for messages.
void apply_overrides(Yaml& yaml, const std::vector<std::string>& overrides, const std::string& name);

// Returns [overlap] tp_comm_overlap_cfg from TransformerEngine's table of products, as in ub_cfg_….yaml; other keys of
// a product, such as num_sm, are left out.
nlohmann::json overlaps_of_products(const nlohmann::json& table);

// Replaces ${multiply:4, ${.hidden_size}} and the like by their values; a reference that cannot be found becomes null.
// Throws Error(input) with `name` where the values would be far more than the text.
void resolve_references(nlohmann::json& root, const std::string& name = "its configuration");

}  // namespace stretto
