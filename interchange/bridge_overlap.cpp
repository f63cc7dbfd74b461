#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/megatron.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

std::string trimmed(const std::string& part) {
  const std::size_t begin = part.find_first_not_of(" \t\r\"'");
  if (begin == std::string::npos) return "";
  return part.substr(begin, part.find_last_not_of(" \t\r\"'") - begin + 1);
}

// Splits "key=value," of Python and "key: value" of YAML into one entry for each line.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#')
      while (i < text.size() && text[i] != '\n') ++i;
    if (i >= text.size()) break;
    if (std::string_view(",()\n").find(text[i]) != std::string_view::npos)
      lines.emplace_back();
    else
      lines.back() += text[i];
  }
  return lines;
}

// Reads a value of the field's kind: a switch, or a whole number of at least 1.
Json value_of(const MegatronRow& row, const std::string& value, const std::string& place) {
  if (row.is_switch) {
    if (value == "True" || value == "true") return true;
    if (value == "False" || value == "false") return false;
    throw input_error(place + ": expected true or false, got " + in_quotes(value));
  }
  std::string digits = value;
  std::erase(digits, '_');
  const Json number = value_of_word(digits);
  if (!number.is_number_integer() || number.get<std::int64_t>() < 1)
    throw input_error(place + ": expected a whole number of at least 1, or None, got " + in_quotes(value));
  return number;
}

}  // namespace

Translation to_bridge(const Scenario& scenario) {
  Translation result;
  result.text = "CommOverlapConfig(\n";
  const Scenario defaults;
  for (const MegatronRow& row : megatron_rows()) {
    const Json value = row.get(scenario);
    if (row.in_bridge && !value.is_null()) {
      const std::string shown = value.is_boolean() ? (value.get<bool>() ? "True" : "False") : value.dump();
      result.text += fmt::format("    {}={},\n", row.name(), shown);
    } else if (!row.in_bridge && row.key.starts_with("overlap.") && value != row.get(defaults)) {
      result.notes.push_back("CommOverlapConfig has no " + row.name());
    }
  }
  result.text += ")\n";
  return result;
}

Translation from_bridge(std::string_view text, const std::string& name) {
  Settings settings;
  settings.name = name;
  std::map<std::string, const MegatronRow*> known;
  std::vector<std::string> names;
  for (const MegatronRow& row : megatron_rows())
    if (row.in_bridge) {
      known[row.name()] = &row;
      names.push_back(row.name());
    }
  for (const std::string& line : lines_of(text)) {
    const std::size_t sign = line.find_first_of("=:");
    const std::string key = trimmed(line.substr(0, sign));
    const std::string value = sign == std::string::npos ? "" : trimmed(line.substr(sign + 1));
    // The line has the name of the class, or the variable that it is assigned to.
    if (key.empty() || value.empty() || value == "CommOverlapConfig" || value.ends_with(".CommOverlapConfig")) {
      if (sign == std::string::npos && !key.empty() && !key.ends_with("CommOverlapConfig"))
        throw input_error(name + ": expected key=value or key: value of CommOverlapConfig, got " + in_quotes(key));
      continue;
    }
    const auto found = known.find(key);
    if (found == known.end()) {
      const std::string nearest = nearest_spelling(key, names);
      throw input_error(name + ": " + in_quotes(key) + ": expected one of " +
                        fmt::format("{}", fmt::join(names, ", ")) +
                        (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
    }
    if (value == "None" || value == "null" || value == "~") {
      settings.ignored.push_back(key);
      continue;
    }
    settings.values["overlap." + key] = value_of(*found->second, value, name + ": " + key);
  }
  if (settings.values.empty() && settings.ignored.empty())
    throw input_error(name + ": expected fields of CommOverlapConfig, got none");
  Translation result{toml_of(settings, {}), {"only [overlap]: the rest of a scenario is yours"}};
  if (settings.values.empty()) result.notes.push_back("every field is as Megatron-Bridge has it by default");
  return result;
}

}  // namespace stretto
