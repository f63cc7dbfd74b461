#include "page/imported.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/megatron.hpp"
#include "interchange/nemo_recipe.hpp"
#include "interchange/recipe.hpp"
#include "interchange/torchtitan.hpp"

namespace stretto::page {
namespace {

Translation translated(const std::string& name, const std::string& text) {
  const std::string suffix = std::filesystem::path(name).extension().string();
  const ImportOptions options;
  if (suffix == ".toml") return from_torchtitan(text, name, options);
  if (suffix == ".yaml" || suffix == ".yml") return from_recipe(text, name, options);
  if (suffix == ".py") return from_python(text, name, options);
  return from_megatron(text, name, options);
}

}  // namespace

nlohmann::json imported_json(const std::string& name, const std::string& text) {
  if (text.size() > kTomlMaxBytes) throw input_error(name + ": expected a file of at most 1 MiB");
  if (!is_toml_text(text)) throw input_error(name + ": expected text in UTF-8");
  const Translation made = translated(name, text);
  return {{"toml", made.text}, {"notes", made.notes}};
}

}  // namespace stretto::page
