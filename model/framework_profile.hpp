#pragma once
#include <string>

#include "base/toml.hpp"
#include "model/framework.hpp"

namespace stretto {

// A profile file (docs/profiles.md): how one generation of a training framework lowers and runs a step.
struct FrameworkProfile {
  Framework framework;
  TomlTable scenario;     // defaults of scenarios: sections model, parallel, overlap, training
  bool has_base = false;  // the file names another profile and replaces keys of that profile
  // CUDA_DEVICE_MAX_CONNECTIONS that the framework sets with tensor or context parallelism on GPUs before Blackwell; 0:
  // none.
  Quantity max_connections;
};

// Reads a profile file. Throws Error(input) as read_scenario does.
FrameworkProfile read_framework_profile(const std::string& path);

}  // namespace stretto
