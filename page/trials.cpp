#include "page/trials.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "ask/simulate.hpp"
#include "predict/quick_step.hpp"
#include "predict/sensitivity.hpp"
#include "report/prediction.hpp"
#include "report/sheet.hpp"
#include "sweep/near.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;

// Returns the text by which a question is known: equal texts have equal steps, because files that are named do not
// change while the page asks about them.
std::string text_of(const ask::Asked& asked) {
  return Json{asked.request.scenario, asked.request.set, asked.request.platform, asked.scenario.name}.dump();
}

Json recipe_changes(const Scenario& scenario) {
  Json changes = Json::array();
  const auto add = [&](const char* change, const char* fp8_format, const char* fp8_recipe, const char* fp4_format) {
    Json set = Json::array();
    set.push_back(std::string("training.fp8_format=") + fp8_format);
    if (*fp8_recipe) set.push_back(std::string("training.fp8_recipe=") + fp8_recipe);
    set.push_back(std::string("training.fp4_format=") + fp4_format);
    changes.push_back(
        {{"change", change}, {"key", "training.fp8_recipe"}, {"kind", "precision"}, {"set", std::move(set)}});
  };
  if (scenario.training.precision != "bf16") return changes;
  add("bf16 matrix multiplies", "none", "", "none");
  add("fp8 delayed", "hybrid", "delayed", "none");
  add("fp8 tensorwise", "hybrid", "tensorwise", "none");
  add("fp8 blockwise", "e4m3", "blockwise", "none");
  add("mxfp8", "e4m3", "mxfp8", "none");
  add("nvfp4", "none", "", "e2m1");
  return changes;
}

}  // namespace

Json changes_of(const ask::Asked& asked) {
  Json changes = recipe_changes(asked.scenario);
  for (const sweep::SingleChange& change : sweep::single_changes(asked.scenario, *asked.platform)) {
    const bool is_switch = change.key.starts_with("overlap.");
    changes.push_back(
        {{"change", change.what}, {"key", change.key}, {"kind", is_switch ? "switch" : "layout"}, {"set", change.set}});
  }
  return {{"changes", std::move(changes)}};
}

Json hardware_of(const ask::Asked& asked) {
  const sim::Platform& platform = *asked.platform;
  if (!platform.accelerator) return {{"machines", Json::array()}, {"first", nullptr}};
  const predict::QuickStep quick(asked.scenario);
  const double step_ms = 1e3 * quick.step_s(platform, asked.scenario.framework);
  Json first;
  if (const auto numbers = predict::sensitivities_of(asked.scenario, platform); !numbers.empty())
    first = {{"number", numbers.front().constant}, {"pct_per_pct", numbers.front().pct_per_pct}};
  return {{"machines", predict::machines_sheet(predict::better_machines(asked.scenario, platform), step_ms).json()},
          {"first", std::move(first)}};
}

Json trial_of(ask::Asked& first, ask::Asked& other) {
  static std::string known_text;
  static Prediction known;
  if (const std::string text = text_of(first); text != known_text) {
    known = ask::simulate(first, {.interval = false}).step.prediction;
    known_text = text;
  }
  const Prediction p = ask::simulate(other, {.interval = false}).step.prediction;
  return {{"step_ms", p.step_ms},
          {"change_pct", 100 * (p.step_ms / known.step_ms - 1)},
          {"memory_bytes", p.memory.predicted_bytes()},
          {"memory_change_bytes", p.memory.predicted_bytes() - known.memory.predicted_bytes()},
          {"device_bytes", p.memory.device_bytes},
          {"memory_verdict", name_of(p.memory.fit())},
          {"mfu", p.throughput.mfu ? Json(*p.throughput.mfu) : Json(nullptr)}};
}

}  // namespace stretto::page
