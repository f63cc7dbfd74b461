#include "model/scenario/keys.hpp"
#include "model/scenario/not_modelled.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {

TomlTable section_of(TomlTable& root, const std::string& name) {
  TomlTable section = root.section(name);
  refuse_not_modelled(section);
  for (const ScenarioKey& key : scenario_keys_of(name))
    for (const char* other : key.also) section.also_spelled(key.name, other);
  return section;
}

}  // namespace stretto
