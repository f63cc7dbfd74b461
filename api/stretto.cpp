#include "api/stretto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/printable.hpp"
#include "cli/version.hpp"
#include "compare/compare.hpp"
#include "exec/machine.hpp"
#include "model/model_json.hpp"
#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/json.hpp"
#include "model/verify/verify.hpp"
#include "predict/fusions.hpp"
#include "predict/inputs.hpp"
#include "predict/knobs.hpp"
#include "predict/predict_modes.hpp"
#include "predict/predict_step.hpp"
#include "report/prediction.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::api {
namespace {

// Calls `act` and turns every exception into an api::Error, so that no internal type leaves the library. Control
// characters in a message are made printable.
template <class Act>
auto guarded(Act act) -> decltype(act()) {
  try {
    return act();
  } catch (const stretto::Error& error) {
    throw Error(printable(error.what()), error.exit_code() == 2);
  } catch (const std::bad_alloc&) {
    throw Error("out of memory", false);
  } catch (const std::exception& error) {
    throw Error(printable(error.what()), false);
  }
}

// Refuses a name that is longer than a path can be, so that the name does not come back in a message.
void require_short(const std::string& what, const std::string& name) {
  constexpr std::size_t kMost = 4096;  // PATH_MAX of Linux
  if (name.size() > kMost)
    throw input_error(
        fmt::format("{}: expected a name or a path of at most {} bytes, got {}", what, kMost, name.size()));
}

Scenario scenario_of(const Request& request) {
  require_short("scenario", request.scenario);
  require_short("platform", request.platform);
  return predict::read_scenario_input(request.scenario, request.set, request.platform);
}

predict::Fusions open_fusions(const Request& request, const Scenario& scenario, const sim::Platform& platform) {
  return predict::open_fusions(scenario, request.scenario, request.set, platform);
}

// Returns the scenario with the platform that the request names.
Scenario scenario_there(const Request& request) {
  Scenario scenario = scenario_of(request);
  if (!request.platform.empty())
    open_fusions(request, scenario, predict::read_platform_input(request.platform, scenario)).apply(scenario);
  return scenario;
}

}  // namespace

std::string simulate(const Request& request, const SimulateOptions& options) {
  return guarded([&] {
    require_short("engine", options.engine);
    if (!std::isfinite(options.backbone_GBps) || options.backbone_GBps < 0)
      throw input_error(
          fmt::format("backbone_GBps: expected a number of GB/s, 0 for none, got {:g}", options.backbone_GBps));
    Scenario scenario = scenario_of(request);
    const sim::Platform platform = predict::read_platform_input(request.platform, scenario);
    const predict::Fusions fusions = open_fusions(request, scenario, platform);
    fusions.apply(scenario);
    const auto [sim_options, simulated] = predict::engine_of(options.engine, options.backbone_GBps, platform, scenario);
    predict::PredictedStep step = predict::predict_step(scenario, simulated, sim_options);
    if (!fusions.note.empty()) step.prediction.notes.push_back(fusions.note);
    nlohmann::json json = prediction_json(step.prediction);
    json["modes"] = json["without"] = nullptr;
    if (options.modes) {
      const std::vector<predict::PredictedMode> modes = predict::predict_modes(scenario, simulated, sim_options);
      json["modes"] = predict::modes_json(modes);
      json["without"] = predict::knobs_json(
          predict::predict_without(scenario, simulated, sim_options, step.prediction.step_ms, modes));
    }
    return json.dump();
  });
}

std::string show(const Request& request) {
  return guarded([&] {
    const Scenario scenario = scenario_there(request);
    const Schedule schedule = build_schedule(scenario, free_memory_bytes());
    plan_and_verify(schedule);
    nlohmann::json json = write_schedule_json(schedule);
    json["model"] = model_json(scenario.model);
    return json.dump();
  });
}

std::string gates(const Request& request) {
  return guarded([&] { return gates_json(gates_of(scenario_there(request))).dump(); });
}

std::string compare(const Request& request) {
  return guarded([&] {
    const Scenario scenario = scenario_of(request);
    const sim::Platform platform = predict::read_platform_input(request.platform, scenario);
    if (platform.accelerator || platform.gpu)
      throw input_error("platform " + platform.name + " is of GPUs; expected one that `stretto calibrate` wrote");
    const exec::Machine machine = exec::host_machine(sim::cores_per_device(platform, scenario.cluster));
    const auto silent = [](const std::string&) {};
    const auto never = [] { return false; };
    return comparison_json(compare::run(scenario, platform, machine, silent, never).comparison).dump();
  });
}

std::vector<std::string> names(const std::string& kind) {
  return guarded([&] {
    require_short("kind", kind);
    const std::vector<std::string> kinds = {"platforms", "profiles", "models", "modes"};
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return data_names(kind);
    const std::string nearest = nearest_spelling(kind, kinds);
    throw input_error("kind: expected platforms, profiles, models or modes, got \"" + kind + "\"" +
                      (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  });
}

std::string version() { return kVersion; }

}  // namespace stretto::api
