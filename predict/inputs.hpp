#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "model/scenario/reader.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// How users name a scenario and a platform: a file, or the name of one that comes with Stretto (base/data_folder.hpp).
// For scenarios an existing file takes precedence, for platforms a shipped name.

// Returns the scenario with overrides, on the named platform (""; the scenario's own). Throws as read_scenario() and
// data_file().
Scenario read_scenario_input(const std::string& scenario, std::vector<std::string> set, const std::string& platform);
// Reads one scenario input with many overrides and platforms. Looks each of them up once. Thread-safe.
class ScenarioInput {
 public:
  explicit ScenarioInput(const std::string& scenario);
  ~ScenarioInput();
  ScenarioInput(ScenarioInput&&) noexcept;
  // Returns what read_scenario_input() returns.
  Scenario read(std::vector<std::string> set, const std::string& platform) const;
  const std::string& text() const { return reader_.text(); }

 private:
  struct Paths;
  ScenarioReader reader_;
  std::unique_ptr<Paths> paths_;
};
// Returns whether a scenario of that name comes with Stretto.
bool is_scenario_name(const std::string& given);
// Returns the file from which a scenario is read.
std::string scenario_path(const std::string& given);

// Returns the path at which `calibrate` writes and all commands look when no file is named:
// $XDG_DATA_HOME/stretto/host.toml, or cuda.toml with that backend, by default in ~/.local/share/stretto; "" without
// such a folder (base/user_folder.hpp).
std::string default_platform_path(const std::string& backend = "host");
// Returns the named platform, else the scenario's, else the one at the default path. Throws Error(input) that says how
// to calibrate when there is none.
sim::Platform read_platform_input(const std::string& platform, const Scenario& scenario,
                                  const std::string& backend = "host");

}  // namespace stretto::predict
