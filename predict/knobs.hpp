#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "predict/predict_modes.hpp"
#include "report/table.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// What a knob of the scenario brings beside all its others: the step with it off, and nothing else. These gains do not
// add up, and a mode's advice, which is against the plain schedule, says something else.
struct KnobOff {
  std::string knob;
  std::vector<std::string> also_off;  // knobs that are an error without it
  double step_ms = 0;                 // without it
  double saved_ms = 0;                // by having it: step_ms less the scenario's own step
};
// One for each knob of [overlap] that is on and acts, in the order of the overlap modes. `step_ms`: the scenario's own
// step. What `modes` has simulated is not simulated again. Throws Error(input) as predict_modes() does.
std::vector<KnobOff> predict_without(const Scenario& scenario, const sim::Platform& platform,
                                     const sim::SimOptions& options, double step_ms,
                                     const std::vector<PredictedMode>& modes);

// What stands above the table, the table, and `without` of `simulate` in docs/json.md.
std::string knobs_text(double step_ms);
Table knobs_table(const std::vector<KnobOff>& knobs);
nlohmann::json knobs_json(const std::vector<KnobOff>& knobs);

}  // namespace stretto::predict
