#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "predict/quick_step.hpp"
#include "report/memory.hpp"
#include "report/table.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// The scenario's step with its linear products in another precision.
struct RecipeStep {
  // Name of LowPrecisionRules::Recipe; "bf16" for none. Where ranks share experts, "mxfp8, rows of experts sent as
  // codes" too, which moe_dispatch_fwd_dtype and moe_combine_bwd_dtype say.
  std::string recipe;
  bool is_scenario = false;     // the scenario's own
  double step_ms = 0;           // 0 where there is none
  std::int64_t peak_bytes = 0;  // memory of the device that has most
  Fit fit = Fit::does_not_fit;
  bool fits = false;    // its bytes are no more than the device has
  std::string why_not;  // why the platform or the scenario has no such step; "" where there is one
};
// Returns a step for each recipe, with the scenario's other settings: the history and the formats of its own recipe,
// where it has one, else TransformerEngine's hybrid of e4m3 and e5m2 for scales of tensors and e4m3 for blocks. Empty
// for a scenario that does not compute in bf16, and for a platform that has no tables of GPUs. `own_step`: the
// scenario's step, where it is built already.
std::vector<RecipeStep> predict_recipes(const Scenario& scenario, const sim::Platform& platform,
                                        const sim::SimOptions& options, const QuickStep* own_step = nullptr);

// Return the text above the table, and the table, `recipes` of `simulate` in docs/json.md.
std::string recipes_text();
Sheet recipes_sheet(const std::vector<RecipeStep>& recipes);

}  // namespace stretto::predict
