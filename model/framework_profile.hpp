#pragma once
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "model/framework.hpp"

namespace stretto {

// A profile file (docs/profiles.md): how one generation of a training framework lowers and runs a step.
struct FrameworkProfile {
  Framework framework;
  TomlTable scenario;  // defaults of scenarios: sections model, parallel, overlap, training
  // CUDA_DEVICE_MAX_CONNECTIONS that the framework sets with tensor or context parallelism on GPUs before Blackwell; 0:
  // none.
  Quantity max_connections;
};

// Releases of a framework: a profile may be written "nemo-dgxc@24.07". Tables [[release]] of its file say which ones
// there are (`names`) and which profile stands for them (`profile`; absent: this one); a release up to `until` counts
// to a table, too. Without "@" the newest is meant, which is the file itself. Returns the profile of a release, "" for
// the newest; `profile` itself where its file says nothing of it.
std::string profile_of_release(const std::string& profile, const std::string& release);
// Returns the name of the profile that "NAME@RELEASE" stands for, and other text as it is. Throws Error(input) with the
// known releases for another one.
std::string released_profile(const std::string& text);

// Returns the names of other profiles that people mean by a framework's name (`could_mean`): another release, or
// recipes of the same library. {} of a framework without a file. Throws Error(input): no such profile.
std::vector<std::string> profiles_meant(const Framework& framework);

// Reads a profile file. Throws Error(input) as read_scenario does.
FrameworkProfile read_framework_profile(const std::string& path);

}  // namespace stretto
