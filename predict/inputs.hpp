#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// What users name a scenario and a platform by: a file, or the name of one that comes with Stretto
// (base/data_folder.hpp). Of the two a scenario's file goes first, a platform's name.

// The scenario with overrides, on the platform when one is named (""; the scenario's own otherwise). Throws as
// read_scenario() and data_file().
Scenario read_scenario_input(const std::string& scenario, std::vector<std::string> set, const std::string& platform);
// The file that a scenario is read from.
std::string scenario_path(const std::string& given);

// Where `calibrate` writes and everything else looks when no file is named: $XDG_DATA_HOME/stretto/host.toml, or
// cuda.toml with that backend, by default in ~/.local/share/stretto.
std::string default_platform_path(const std::string& backend = "host");
// The platform that is named, else the scenario's, else the default place. Throws Error(input) that says how to
// calibrate when there is none.
sim::Platform read_platform_input(const std::string& platform, const Scenario& scenario,
                                  const std::string& backend = "host");

}  // namespace stretto::predict
