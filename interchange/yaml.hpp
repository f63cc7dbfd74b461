#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stretto {

// The part of YAML in which recipes are written: mappings and sequences by indentation, flow ones in one line, plain
// and quoted scalars, block texts, comments. Tags and anchors are ignored; of several documents the first is read.
struct Yaml {
  nlohmann::json root;
  std::map<std::string, int> lines;  // lines of keys, by their path, "model.num_layers"
};

// Parses YAML. Throws Error(input), "name:line: …".
Yaml parse_yaml(std::string_view text, const std::string& name);

}  // namespace stretto
