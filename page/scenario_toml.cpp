#include "page/scenario_toml.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/charconv.hpp"
#include "base/overloaded.hpp"
#include "base/toml.hpp"
#include "base/toml_text.hpp"
#include "model/scenario/overrides.hpp"
#include "predict/inputs.hpp"

namespace stretto::page {
namespace {

bool is_plain(const std::string& key) {
  return !key.empty() &&
         key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == std::string::npos;
}

// A string of JSON is one of TOML: both escape the same characters in the same way.
std::string in_toml(const std::string& text) { return nlohmann::json(text).dump(); }
std::string key_in_toml(const std::string& key) { return is_plain(key) ? key : in_toml(key); }

std::string in_toml(double number) {
  const std::string text = shortest_text(number);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string value_in_toml(const TomlNode& node) {
  return std::visit(
      Overloaded{[](bool value) { return std::string(value ? "true" : "false"); },
                 [](std::int64_t value) { return std::to_string(value); }, [](double value) { return in_toml(value); },
                 [](const std::string& value) { return in_toml(value); },
                 [](const TomlNode::Array& array) {
                   std::string text = "[";
                   for (const TomlNode& one : array) text += (text.size() > 1 ? ", " : "") + value_in_toml(one);
                   return text + "]";
                 },
                 [](const TomlNode::Table& table) {
                   std::string text = "{";
                   for (const auto& [key, one] : table)
                     text += (text.size() > 1 ? ", " : " ") + key_in_toml(key) + " = " + value_in_toml(one);
                   return text + " }";
                 }},
      node.data);
}

TomlNode file_with(const std::string& given, const std::vector<std::string>& set) {
  const std::string path = predict::scenario_path(given);
  TomlNode file = parse_toml_nodes(toml_text(path), path);
  apply_settings(file, set);
  return file;
}

}  // namespace

std::string profile_of(const std::string& given, const std::vector<std::string>& set) {
  TomlNode file = file_with(given, set);
  const auto& root = std::get<TomlNode::Table>(file.data);
  const auto found = root.find("profile");
  const auto* name = found == root.end() ? nullptr : std::get_if<std::string>(&found->second.data);
  return name == nullptr ? "" : *name;
}

std::string scenario_toml(const std::string& given, const std::vector<std::string>& set, const std::string& platform) {
  TomlNode file = file_with(given, set);
  auto& root = std::get<TomlNode::Table>(file.data);
  if (!platform.empty()) root["platform"].data = platform;
  std::string text, sections;
  for (const auto& [key, node] : root)
    if (const auto* table = std::get_if<TomlNode::Table>(&node.data)) {
      sections += "\n[" + key_in_toml(key) + "]\n";
      for (const auto& [name, value] : *table) sections += key_in_toml(name) + " = " + value_in_toml(value) + "\n";
    } else {
      text += key_in_toml(key) + " = " + value_in_toml(node) + "\n";
    }
  return text + sections;
}

}  // namespace stretto::page
