#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/interchange/imported.hpp"

namespace stretto {

// A scenario from YAML: a configuration of NeMo (of NeMo-Framework-Launcher 24.09, or of NeMo 2), a ConfigContainer of
// Megatron-Bridge (August 2026), a `model_config.yaml` of Megatron-LM's functional tests, or fields of
// CommOverlapConfig alone. What the file is follows from its sections. Keys are known by their names wherever they
// stand. Throws Error(input) as parse_yaml() and scenario_of().
Translation from_recipe(std::string_view text, const std::string& name, const ImportOptions& options = {});

// A command line of Megatron-Bridge's run_recipe.py: `--recipe NAME` and overrides, "model.seq_length=4096". The sizes
// are those that the recipe's name says. Throws as from_recipe().
struct CommandLine;
bool is_recipe_command(const CommandLine& line);
Translation from_recipe_command(const CommandLine& line, const std::string& name, const ImportOptions& options);

// From YAML that was read; `folder` is where the launcher's configurations of its stage are, "" where `name` stands.
struct Yaml;
Translation from_yaml(Yaml yaml, const std::string& name, const ImportOptions& options, const std::string& folder);
// Puts "key.of.it=value" into the YAML, "+key" and "++key" too; "~key" takes a key out. `name` is for messages.
void apply_overrides(Yaml& yaml, const std::vector<std::string>& overrides, const std::string& name);

// [overlap] tp_comm_overlap_cfg from TransformerEngine's table of products, as ub_cfg_….yaml has it; what else a
// product has, as num_sm, is left out.
nlohmann::json overlaps_of_products(const nlohmann::json& table);

// ${multiply:4, ${.hidden_size}} and the like, put in; what cannot be found becomes null.
void resolve_references(nlohmann::json& root);

}  // namespace stretto
