#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "predict/fusions.hpp"
#include "predict/inputs.hpp"
#include "sim/platform.hpp"

// The use cases: one function each, with all of its checks, defaults, notes and JSON. The command, the library and the
// page are doors to them, which translate what people give and print what they get; so their answers are equal.
// Messages name options as the command has them.
namespace stretto::ask {

// The inputs of a use case as people name them.
struct Request {
  std::string scenario;  // a file, the name of one that comes with Stretto, or with "gpus=N" in `set` a model's name
  std::vector<std::string> set = {};  // overrides, "section.key=value"; short names too (full_setting())
  std::string platform = {};          // a file or a name; "": the scenario's, else the calibrated one
};

// Returns the request; of a question in names, with the name of the scenario that answers it
// (habits::scenario_of_names()). Throws Error(input) as that does, and for a model's name without a number of GPUs.
Request found(Request of);
// Returns the found request with its keys in full. Throws Error(input) as found() does, and for a name that is longer
// than a path can be.
Request checked(Request of);

// A request that has been read. Movable.
struct Asked {
  // Reads the scenario. Throws Error(input) as checked() and predict::read_scenario_input() do.
  explicit Asked(Request of);
  // Reads the platform, unless `known` is it, and turns on the fusions that the scenario leaves open and the platform
  // measured faster. Throws as predict::read_platform_input() and predict::open_fusions() do.
  void read_platform(std::shared_ptr<const sim::Platform> known = nullptr);
  // Returns the scenario with further overrides, and with the fusions that are on. Thread-safe. Throws Error(input)
  // where they are refused.
  Scenario with(const std::vector<std::string>& further) const;

  Request request;
  predict::ScenarioInput input;
  predict::Fusions fusions;
  Scenario scenario;
  std::shared_ptr<const sim::Platform> platform;  // null until it is read
};

}  // namespace stretto::ask
