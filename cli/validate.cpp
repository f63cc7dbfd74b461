#include "compare/validate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/components.hpp"
#include "report/table.hpp"

namespace stretto::cli {
namespace {

struct ValidateOptions {
  std::string published;
  bool rows = false;
  ComponentOptions components;
  Output json;
  Files files;
};

using compare::Fitted;
using compare::ValidatedGroup;
using compare::ValidatedStep;

std::string percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }
std::string errors_text(const ValidatedGroup::Errors& errors) {
  return fmt::format("{:.1f} %, {:+.1f}, {:+.1f}", 100 * errors.mean_abs, 100 * errors.bias, 100 * errors.worst);
}

nlohmann::json json_of(const ValidatedGroup::Errors& errors) {
  return {{"mean_abs_error_pct", 100 * errors.mean_abs},
          {"median_abs_error_pct", 100 * errors.median_abs},
          {"bias_pct", 100 * errors.bias},
          {"worst_error_pct", 100 * errors.worst}};
}

nlohmann::json json_of(const compare::Validation& validation) {
  nlohmann::json groups = nlohmann::json::array(), rows = nlohmann::json::array(), skipped = nlohmann::json::array();
  for (const ValidatedGroup& group : validation.groups) {
    nlohmann::json one = {{"group", group.name},
                          {"rows", group.steps.size()},
                          {"fitted_constants", group.fitted_constants},
                          {"constant_mfu", json_of(group.constant_mfu)}};
    for (int f = 0; f < compare::kFittedKinds; ++f)
      one[name_of(static_cast<Fitted>(f))] = json_of(group.errors[static_cast<std::size_t>(f)]);
    groups.push_back(std::move(one));
  }
  for (const ValidatedStep& step : validation.steps) {
    if (!step.published.skipped.empty()) {
      skipped.push_back({{"id", step.published.id}, {"why", step.published.skipped}});
      continue;
    }
    nlohmann::json one = {{"id", step.published.id},
                          {"model", step.published.model},
                          {"gpus", step.published.gpus},
                          {"measured_s", step.published.step_s},
                          {"measured_mfu_pct", 100 * step.mfu},
                          {"constant_mfu_s", step.constant_mfu_s},
                          {"assumptions", step.published.assumptions}};
    for (int f = 0; f < compare::kFittedKinds; ++f)
      one[std::string("predicted_") + name_of(static_cast<Fitted>(f)) + "_s"] =
          step.predicted_s[static_cast<std::size_t>(f)];
    for (const auto& [what, share] : step.limits) one["limits"][what] = share;
    rows.push_back(std::move(one));
  }
  return {{"groups", groups}, {"rows", rows}, {"skipped", skipped}};
}

void run(const ValidateOptions& options) {
  options.files.claim_outputs();
  if (options.components.is_asked) return show_components(options.components, options.json);
  if (options.published.empty())
    throw input_error("expected FILE, published steps as CSV, or --components, got neither");
  const compare::Validation validation = compare::validate(compare::read_published(options.published));
  if (options.rows) {
    Table table({"row", "model", "GPUs", "measured s", "predicted s", "error", "sourced", "nothing fitted", "mostly"});
    for (const ValidatedStep& step : validation.steps) {
      if (!step.published.skipped.empty()) continue;
      std::string limits;
      for (std::size_t i = 0; i < std::min<std::size_t>(3, step.limits.size()); ++i)
        limits += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", step.limits[i].first, 100 * step.limits[i].second);
      table.add_row({step.published.id, step.published.model, fmt::format("{}", step.published.gpus),
                     fmt::format("{:.4f}", step.published.step_s), fmt::format("{:.4f}", step.predicted_s.back()),
                     percent(step.error(Fitted::shipped)), percent(step.error(Fitted::sourced)),
                     percent(step.error(Fitted::nothing)), limits});
    }
    std::cout << table.text() << "\n";
  }
  Table table(
      {"group", "rows", "fitted constants", "shipped: mean, bias, worst", "sourced", "nothing fitted", "constant MFU"});
  for (const ValidatedGroup& group : validation.groups)
    table.add_row({group.name, fmt::format("{}", group.steps.size()), fmt::format("{}", group.fitted_constants),
                   errors_text(group.errors[2]), errors_text(group.errors[1]), errors_text(group.errors[0]),
                   errors_text(group.constant_mfu)});
  std::cout << table.text();
  std::map<std::string, int> reasons;
  for (const ValidatedStep& step : validation.steps)
    if (!step.published.skipped.empty()) ++reasons[step.published.skipped];
  for (const auto& [why, count] : reasons) std::cout << fmt::format("skipped {}: {}\n", count, why);
  if (!options.json.empty()) write_json(options.json, json_of(validation));
}

}  // namespace

void add_validate(CLI::App& app) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand("validate", "predicted against published step times");
  options->files.add_input(*command, "FILE", options->published, "published steps as CSV (docs/validate.md)");
  add_component_options(*command, options->files, options->components);
  command->add_flag("--rows", options->rows, "each row, not only groups");
  add_json_option(*command, options->files, options->json);
  command->callback([options] { run(*options); });
}

}  // namespace stretto::cli
