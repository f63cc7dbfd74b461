#include "predict/recipes.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/values_of.hpp"
#include "model/overlap/gates.hpp"
#include "predict/quick_step.hpp"
#include "report/units.hpp"

namespace stretto::predict {
namespace {

using Recipe = LowPrecisionRules::Recipe;

constexpr const char* kSendsCodes = "mxfp8, rows of experts sent as codes";

bool sends_codes(const LowPrecision& precision) {
  return precision.moe_dispatch_fwd_dtype != LowPrecision::WireDtype::bf16 ||
         precision.moe_combine_bwd_dtype != LowPrecision::WireDtype::bf16;
}

// Sets the recipe; a setting that only another recipe has becomes its default.
void set_recipe(LowPrecision& precision, Recipe recipe, bool sends) {
  using P = LowPrecision;
  precision.moe_dispatch_fwd_dtype = precision.moe_combine_bwd_dtype = sends ? P::WireDtype::mxfp8 : P::WireDtype::bf16;
  if (sends) precision.first_last_layers_bf16 = false;
  if (recipe != Recipe::mxfp8) precision.reuse_grad_buf_for_mxfp8_param_ag = false;
  if (recipe == Recipe::delayed) precision.first_last_layers_bf16 = false;
  precision.fp4_format = recipe == Recipe::nvfp4 ? P::Fp4Format::e2m1 : P::Fp4Format::none;
  if (recipe == Recipe::none || recipe == Recipe::nvfp4) {
    precision.fp8_format = P::Fp8Format::none;
    return;
  }
  const bool of_tensors = recipe == Recipe::delayed || recipe == Recipe::tensorwise;
  precision.fp8_format = of_tensors ? P::Fp8Format::hybrid : P::Fp8Format::e4m3;
  precision.fp8_recipe = recipe == Recipe::delayed      ? P::Fp8Recipe::delayed
                         : recipe == Recipe::tensorwise ? P::Fp8Recipe::tensorwise
                         : recipe == Recipe::blockwise  ? P::Fp8Recipe::blockwise
                                                        : P::Fp8Recipe::mxfp8;
}

// Returns the least compute capability of a GPU with the products (TransformerEngine, pytorch/quantization.py).
double least_capability(Recipe recipe) {
  switch (recipe) {
    case Recipe::delayed:
    case Recipe::tensorwise:
      return 8.9;
    case Recipe::blockwise:
      return 9.0;
    case Recipe::mxfp8:
    case Recipe::nvfp4:
      return 10.0;
    case Recipe::none:
      break;
  }
  return 0;
}

const RecipeStep* own_of(const std::vector<RecipeStep>& recipes) {
  for (const RecipeStep& step : recipes)
    if (step.is_scenario) return &step;
  return nullptr;
}

}  // namespace

std::vector<RecipeStep> predict_recipes(const Scenario& scenario, const sim::Platform& platform,
                                        const sim::SimOptions& options, const QuickStep* own_step) {
  std::vector<RecipeStep> steps;
  if (!platform.accelerator || scenario.training.precision != "bf16") return steps;
  const Recipe own = rules_of(scenario.training.low_precision, scenario.compute_capability).recipe;
  std::vector<std::pair<Recipe, bool>> recipes;  // and whether rows of experts are sent as codes
  for (const Recipe recipe : values_of<Recipe>()) {
    recipes.emplace_back(recipe, false);
    if (recipe == Recipe::mxfp8 && scenario.model.experts.any() && scenario.parallel.expert_model_parallel_size > 1)
      recipes.emplace_back(recipe, true);
  }
  steps.resize(recipes.size());
  const auto predict = [&](std::int64_t at) {
    const auto [recipe, sends] = recipes[static_cast<std::size_t>(at)];
    RecipeStep& step = steps[static_cast<std::size_t>(at)];
    step.recipe = sends ? kSendsCodes : recipe == Recipe::none ? "bf16" : name_of(recipe);
    step.is_scenario = recipe == own && sends == sends_codes(scenario.training.low_precision);
    if (const double least = least_capability(recipe);
        platform.compute_capability > 0 && platform.compute_capability < least) {
      step.why_not = fmt::format("needs a GPU of compute capability {:.1f}", least);
      return;
    }
    Scenario other = scenario;
    if (!step.is_scenario) set_recipe(other.training.low_precision, recipe, sends);
    const Gates gates = gates_of(other);
    if (const Gate* refused = gates.refused(other.by_profile)) {
      step.why_not = refused->knob + ": " + refused->refusal();
      return;
    }
    try {
      std::optional<QuickStep> built;
      const QuickStep& quick = step.is_scenario && own_step != nullptr ? *own_step : built.emplace(other);
      const DeviceMemory memory = quick.memory(platform);
      step.step_ms = 1e3 * quick.step_s(platform, other.framework, options);
      step.peak_bytes = memory.predicted_bytes();
      step.fit = memory.fit();
      step.fits = memory.fits();
    } catch (const Error& error) {
      step.why_not = error.what();
    }
  };
  // Only one SimGrid engine can exist at a time.
  if (options.network == sim::NetworkKind::fluid)
    parallel_each(std::ssize(recipes), predict);
  else
    for (std::int64_t i = 0; i < std::ssize(recipes); ++i) predict(i);
  return steps;
}

std::string recipes_text() {
  return "linear products of the layers in each precision, all else as in the scenario (docs/low-precision.md)";
}

Table recipes_table(const std::vector<RecipeStep>& recipes) {
  Table table({"recipe", "step", "saves", "of the step", "memory of a GPU", "less memory", "fits"});
  const RecipeStep* own = own_of(recipes);
  for (const RecipeStep& r : recipes) {
    const std::string name = r.recipe + (r.is_scenario ? " (the scenario)" : "");
    if (!r.why_not.empty() || own == nullptr || !own->why_not.empty()) {
      table.add_row({name, "–", r.why_not, "", "", "", ""});
      continue;
    }
    const double saved_ms = own->step_ms - r.step_ms;
    table.add_row(
        {name, time_text(r.step_ms), (saved_ms < 0 ? "−" : "") + time_text(std::abs(saved_ms)),
         fmt::format("{:+.1f} %", 100 * saved_ms / own->step_ms), size_text(double(r.peak_bytes)),
         (r.peak_bytes > own->peak_bytes ? "−" : "") + size_text(std::abs(double(own->peak_bytes - r.peak_bytes))),
         name_of(r.fit)});
  }
  return table;
}

nlohmann::json recipes_json(const std::vector<RecipeStep>& recipes) {
  nlohmann::json rows = nlohmann::json::array();
  for (const RecipeStep& r : recipes)
    rows.push_back({{"recipe", r.recipe},
                    {"is_scenario", r.is_scenario},
                    {"step_ms", r.why_not.empty() ? nlohmann::json(r.step_ms) : nlohmann::json()},
                    {"peak_bytes", r.why_not.empty() ? nlohmann::json(r.peak_bytes) : nlohmann::json()},
                    {"memory_verdict", r.why_not.empty() ? nlohmann::json(name_of(r.fit)) : nlohmann::json()},
                    {"fits", r.why_not.empty() ? nlohmann::json(r.fits) : nlohmann::json()},
                    {"why_not", r.why_not}});
  return rows;
}

}  // namespace stretto::predict
