#pragma once
#include <string>

#include "cli/files.hpp"

namespace stretto::cli {

// `validate --components`: tables of platforms against themselves (validate/validate_components.hpp).
struct ComponentOptions {
  bool is_asked = false;
  std::string platform;  // one file; "" for all that ship
};
void add_component_options(CLI::App& command, Files& files, ComponentOptions& options);
void show_components(const ComponentOptions& options, const Output& json);

}  // namespace stretto::cli
