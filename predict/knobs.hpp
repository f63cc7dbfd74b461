#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "predict/gain.hpp"
#include "predict/predict_modes.hpp"
#include "report/table.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// The effect of a knob in addition to all others of the scenario: the step with only this knob off. These gains do not
// add up, and they differ from a mode's advice, which is relative to the plain schedule.
struct KnobOff {
  std::string knob;
  std::vector<std::string> also_off;  // knobs that are an error without `knob`, and so are off too
  double step_ms = 0;                 // step without the knob
  double saved_ms = 0;                // step_ms minus the scenario's own step
  // On a published GPU the interval of what it saves, in percent of the scenario's own step (predict/gain.hpp).
  double low_pct = 0, high_pct = 0;
  Doubt decides = Doubt::nothing;
};
// Returns one entry for each knob of [overlap] that is on and acts, in the order of the overlap modes. `step_ms`: the
// scenario's own step. Steps that `modes` has are not simulated again. `own`: the scenario's step, where it is built
// already. Throws Error(input) as predict_modes() does.
std::vector<KnobOff> predict_without(const Scenario& scenario, const sim::Platform& platform,
                                     const sim::SimOptions& options, double step_ms,
                                     const std::vector<PredictedMode>& modes, const QuickStep* own = nullptr);

// Return the text above the table, and the table, `without` of `simulate` in docs/json.md.
std::string knobs_text(double step_ms);
Sheet knobs_sheet(const std::vector<KnobOff>& knobs);

}  // namespace stretto::predict
