#include "predict/recipes.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/values_of.hpp"
#include "model/overlap/gates.hpp"
#include "predict/quick_step.hpp"
#include "report/sheet.hpp"
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

Sheet recipes_sheet(const std::vector<RecipeStep>& recipes) {
  using Text = std::function<std::string(const RecipeStep&)>;
  const RecipeStep* own = own_of(recipes);
  const bool has_own = own != nullptr && own->why_not.empty();
  // Where a recipe has no step, or there is none to compare it with, the third column says why.
  const auto where_known = [=](Text text, Text otherwise = nullptr) -> Text {
    return [=](const RecipeStep& r) {
      return r.why_not.empty() && has_own ? text(r) : otherwise ? otherwise(r) : std::string();
    };
  };
  const auto value_of = [](auto RecipeStep::*member) {
    return [=](const RecipeStep& r) { return r.why_not.empty() ? nlohmann::json(r.*member) : nlohmann::json(); };
  };
  const auto saved_ms = [=](const RecipeStep& r) { return own->step_ms - r.step_ms; };
  return {
      recipes,
      std::vector<Column<RecipeStep>>{
          {"recipe", "recipe", [](const RecipeStep& r) { return r.recipe; },
           [](const RecipeStep& r) { return r.recipe + (r.is_scenario ? " (the scenario)" : ""); }},
          {"is_scenario", "", [](const RecipeStep& r) { return r.is_scenario; }},
          {"step_ms", "step", value_of(&RecipeStep::step_ms),
           where_known([](const RecipeStep& r) { return time_text(r.step_ms); }, [](auto&) { return "–"; })},
          {"why_not", "saves", [](const RecipeStep& r) { return r.why_not; },
           where_known(
               [=](const RecipeStep& r) { return (saved_ms(r) < 0 ? "−" : "") + time_text(std::abs(saved_ms(r))); },
               [](const RecipeStep& r) { return r.why_not; })},
          {"", "of the step", nullptr, where_known([=](const RecipeStep& r) {
             return fmt::format("{:+.1f} %", 100 * saved_ms(r) / own->step_ms);
           })},
          {"peak_bytes", "memory of a GPU", value_of(&RecipeStep::peak_bytes),
           where_known([](const RecipeStep& r) { return size_text(double(r.peak_bytes)); })},
          {"", "less memory", nullptr, where_known([=](const RecipeStep& r) {
             return (r.peak_bytes > own->peak_bytes ? "−" : "") +
                    size_text(std::abs(double(own->peak_bytes - r.peak_bytes)));
           })},
          {"memory_verdict", "fits",
           [](const RecipeStep& r) { return r.why_not.empty() ? nlohmann::json(name_of(r.fit)) : nlohmann::json(); },
           where_known([](const RecipeStep& r) { return name_of(r.fit); })},
          {"fits", "", value_of(&RecipeStep::fits)}}};
}

}  // namespace stretto::predict
