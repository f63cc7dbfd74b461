#include "interchange/model_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/model_shapes.hpp"
#include "model/transformer.hpp"

namespace stretto {
namespace {

// Words of repositories' names that change no size of the model.
constexpr std::array kOwners = {"meta", "nvidia", "mistralai"};
constexpr std::array kEndings = {"base", "instruct", "chat", "hf", "pretrain", "pretrained", "it"};

std::string letters_and_digits(std::string_view text) {
  std::string plain;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0) plain += static_cast<char>(std::tolower(c));
  return plain;
}

std::vector<ModelName> read_model_names() {
  const std::string path = data_path("model_names.toml");
  TomlTable root = read_toml(path);
  std::vector<ModelName> names;
  for (TomlTable& table : root.tables("model")) {
    ModelName model;
    model.name = require<std::string>(table, "name");
    model.preset = value_or<std::string>(table, "preset", "");
    model.shape = value_or<std::string>(table, "shape", "");
    model.recipe = value_or<std::string>(table, "recipe", "");
    for (const std::string& other : value_or<std::vector<std::string>>(table, "also", {}))
      model.also.push_back(folded_model(other));
    table.finish();
    names.push_back(std::move(model));
  }
  root.finish();
  for (const std::string& preset : preset_names())
    if (std::none_of(names.begin(), names.end(), [&](const ModelName& one) { return one.preset == preset; }))
      names.push_back({preset, preset, "", "", {}});
  for (ModelName& model : names) model.also.insert(model.also.begin(), folded_model(model.name));
  return names;
}

}  // namespace

std::string folded_model(std::string_view text) {
  if (const std::size_t slash = text.rfind('/'); slash != std::string_view::npos) text.remove_prefix(slash + 1);
  std::string plain = letters_and_digits(text);
  for (const std::string_view word : kOwners)
    if (plain.starts_with(word) && plain.size() > word.size()) plain.erase(0, word.size());
  for (bool is_cut = true; is_cut;) {
    is_cut = false;
    for (const std::string_view word : kEndings)
      if (plain.ends_with(word) && plain.size() > word.size()) {
        plain.resize(plain.size() - word.size());
        is_cut = true;
      }
  }
  return plain;
}

const std::vector<ModelName>& model_names() {
  static const std::vector<ModelName> names = read_model_names();
  return names;
}

const ModelName* model_named(std::string_view text) {
  const std::string plain = folded_model(text);
  for (const ModelName& model : model_names())
    if (std::find(model.also.begin(), model.also.end(), plain) != model.also.end()) return &model;
  return nullptr;
}

std::string nearest_model(std::string_view text) {
  std::vector<std::string> spellings;
  for (const ModelName& model : model_names()) spellings.insert(spellings.end(), model.also.begin(), model.also.end());
  const std::string nearest = nearest_spelling(folded_model(text), spellings);
  const ModelName* model = nearest.empty() ? nullptr : model_named(nearest);
  return model == nullptr ? "" : model->name;
}

std::string keys_of_model(const ModelName& model) {
  if (!model.preset.empty()) return fmt::format("preset = \"{}\"\n", model.preset);
  Settings settings;
  if (!add_shape_by_name(model.shape, settings))
    throw input_error(data_path("model_names.toml") + ": shape: expected a model of model_shapes.cpp, got " +
                      in_quotes(model.shape));
  std::string keys;
  for (const auto& [key, value] : settings.values)
    keys += fmt::format("{} = {}\n", key.substr(key.find('.') + 1), value.dump());
  return keys;
}

}  // namespace stretto
