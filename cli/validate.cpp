#include "validate/validate.hpp"

#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/components.hpp"
#include "cli/progress.hpp"
#include "cli/registered.hpp"
#include "cli/terminal.hpp"
#include "predict/accuracy.hpp"
#include "validate/validation_page.hpp"
#include "validate/validation_screen.hpp"
#include "validate/validation_tables.hpp"

namespace stretto::cli {
namespace {

struct ValidateOptions {
  std::string published;
  bool rows = false, groups = false, verbose = false;
  std::string color = "auto";
  ComponentOptions components;
  RegisterOptions registered;
  validate::ValidationOptions asked;
  Output json, html;
  Files files;
};

using validate::Fitted;
using validate::ValidatedGroup;
using validate::ValidatedStep;

nlohmann::json json_of(const ValidatedGroup::Errors& errors) {
  return {{"mean_abs_error_pct", 100 * errors.mean_abs},
          {"median_abs_error_pct", 100 * errors.median_abs},
          {"bias_pct", 100 * errors.bias},
          {"worst_error_pct", 100 * errors.worst}};
}

nlohmann::json json_of(const validate::Ranking& ranking) {
  return {{"choices", ranking.choices},
          {"best_picked", ranking.best},
          {"within_3_pct", ranking.good},
          {"mean_regret_pct", 100 * ranking.mean},
          {"worst_regret_pct", 100 * ranking.worst},
          {"random_mean_regret_pct", 100 * ranking.random_mean},
          {"random_worst_regret_pct", 100 * ranking.random_worst}};
}

// Returns constants with the change of the step's logarithm that each causes.
nlohmann::json json_of(const std::vector<std::pair<std::string, double>>& shares) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, share] : shares) list.push_back({{"constant", name}, {"pct", 100 * share}});
  return list;
}

nlohmann::json json_of(const ValidatedGroup& group, const validate::ValidationOptions& asked) {
  nlohmann::json one = {
      {"group", group.name},
      {"rows", group.steps.size()},
      {"fitted_constants", group.fitted_constants},
      {"constant_mfu", group.constant_mfu.mean_abs > 0 ? json_of(group.constant_mfu) : nlohmann::json()},
      {"ranking", json_of(group.ranking)},
      {"pairs", nlohmann::json::array()},
      {"memory", nullptr},
      {"not_fitting", group.over},
      {"intervals", nullptr},
      {"left_out", nullptr}};
  if (group.memory_rows > 0) {
    one["memory"] = json_of(group.memory);
    one["memory"]["rows"] = group.memory_rows;
  }
  for (int f = 0; f < validate::kFittedKinds; ++f)
    one[name_of(static_cast<Fitted>(f))] = json_of(group.errors[static_cast<std::size_t>(f)]);
  for (const validate::PairKind& kind : group.pairs)
    one["pairs"].push_back({{"differ", kind.what},
                            {"pairs", kind.pairs},
                            {"apart", kind.apart},
                            {"right_sign", kind.right_sign},
                            {"median_ratio_error_pct", 100 * kind.median_error},
                            {"within_4_points_pct", 100 * kind.within}});
  if (asked.intervals)
    one["intervals"] = {{"inside_pct", 100 * group.inside},
                        {"mean_half_width_pct", 100 * group.half_width},
                        {"constants", json_of(group.uncertain)}};
  if (asked.leave_out && !group.left_out.empty()) {
    one["left_out"] = json_of(group.left_out_errors);
    for (const validate::LeftOut& left_out : group.left_out) {
      nlohmann::json constants = nlohmann::json::array();
      for (const validate::Refitted& constant : left_out.constants)
        constants.push_back({{"constant", constant.name}, {"shipped", constant.shipped}, {"fitted", constant.value}});
      one["left_out"]["models"].push_back({{"hidden_size", left_out.hidden_size},
                                           {"rows", left_out.steps},
                                           {"fitted_to", left_out.fitted_to},
                                           {"constants", constants}});
    }
  }
  return one;
}

nlohmann::json json_of(const ValidatedStep& step, const validate::ValidationOptions& asked) {
  nlohmann::json one = {
      {"id", step.published.id},
      {"model", step.published.model},
      {"gpus", step.published.gpus},
      {"profile", step.scenario.framework.name},
      {"platform", step.published.platform},
      {"precision", predict::precision_of_products(step.scenario)},
      {"measured_s", step.published.step_s},
      // Above 100 % the data sheet's rate is no yardstick for the row.
      {"measured_mfu_pct", step.mfu <= 1 ? nlohmann::json(100 * step.mfu) : nlohmann::json()},
      {"constant_mfu_s", step.constant_mfu_s > 0 ? nlohmann::json(step.constant_mfu_s) : nlohmann::json()},
      {"left_out_s", nullptr},
      {"interval", nullptr},
      {"readings", nlohmann::json::array()},
      {"predicted_peak_bytes", step.peak_bytes},
      {"published_peak_bytes", nullptr},
      {"peak_of", nullptr},
      {"memory_error_pct", nullptr},
      {"published_active_s", step.published.active_s > 0 ? nlohmann::json(step.published.active_s) : nlohmann::json()},
      {"published_hidden_s", step.published.hidden_s > 0 ? nlohmann::json(step.published.hidden_s) : nlohmann::json()},
      {"predicted_active_s", step.active_s},
      {"predicted_hidden_s", step.hidden_s},
      {"fits", step.over_bytes <= 0},
      {"assumptions", step.published.assumed()}};
  for (int f = 0; f < validate::kFittedKinds; ++f)
    one[std::string("predicted_") + name_of(static_cast<Fitted>(f)) + "_s"] = step.predicted(static_cast<Fitted>(f));
  for (const auto& [what, share] : step.limits) one["limits"][what] = share;
  if (step.published.hbm_GiB > 0) {
    one["published_peak_bytes"] = std::llround(step.published.hbm_GiB * double(1 << 30));
    one["peak_of"] = step.published.hbm_of;
    one["memory_error_pct"] = 100 * step.memory_error();
  }
  for (std::size_t i = 0; i < step.readings_s.size(); ++i)
    one["readings"].push_back({{"reading", step.published.readings[i].what}, {"predicted_s", step.readings_s[i]}});
  if (step.left_out_s > 0) one["left_out_s"] = step.left_out_s;
  if (asked.intervals)
    one["interval"] = {{"low_s", step.low_s()},
                       {"high_s", step.high_s()},
                       {"inside", step.is_inside()},
                       {"constants", json_of(step.spread.shares)}};
  return one;
}

nlohmann::json json_of(const validate::Validation& validation) {
  nlohmann::json groups = nlohmann::json::array(), rows = nlohmann::json::array(), skipped = nlohmann::json::array();
  for (const ValidatedGroup& group : validation.groups) groups.push_back(json_of(group, validation.options));
  for (const ValidatedStep& step : validation.steps)
    if (step.published.skipped.empty())
      rows.push_back(json_of(step, validation.options));
    else
      skipped.push_back({{"id", step.published.id}, {"line", step.published.line}, {"why", step.published.skipped}});
  return {{"groups", groups}, {"rows", rows}, {"skipped", skipped}};
}

void print(const Table& table) {
  if (table.rows() > 0) std::cout << "\n" << table.text();
}

void run(const ValidateOptions& options) {
  options.files.claim_outputs();
  if (options.components.is_asked) return show_components(options.components, options.json);
  if (!options.registered.file.empty()) return register_recipes(options.registered);
  const std::string file = options.published.empty() ? data_path("published.csv") : options.published;
  if (!options.registered.score.empty()) return show_score(options.registered, file, options.json);
  Progress progress;
  bool has_begun = false;
  const validate::Validation validation =
      validate::validate(validate::read_published(file), options.asked, [&](const std::string& line) {
        if (has_begun)
          progress.show(line);
        else
          progress.begin(line);
        has_begun = true;
      });
  progress.clear();
  const Ink ink = ink_of_output(options.color);
  if (options.rows) std::cout << table_of_rows(validation).text() << "\n";
  print_screen(first_screen(validation, ink), ink);
  if (options.groups || options.verbose) std::cout << "\n" << table_of_groups(validation).text();
  print(table_of_intervals(validation));
  print(table_of_left_out(validation));
  if (options.verbose) {
    std::cout << "\n";
    for (const auto& lines : {skipped_lines(validation), assumed_lines(validation)})
      for (const std::string& line : lines) std::cout << line << "\n";
    for (const Table& table : {table_of_memory(validation), table_of_communication(validation),
                               table_of_pairs(validation), table_of_rankings(validation)})
      print(table);
  }
  if (!options.json.empty()) write_json(options.json, json_of(validation));
  if (!options.html.empty())
    write_text(options.html, render_validation(validation, std::filesystem::path(file).filename()));
}

}  // namespace

void add_validate(CLI::App& app) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand("validate", "predicted against published step times");
  options->files.add_input(*command, "FILE", options->published,
                           "published steps as CSV (docs/validate.md); default: those that come with Stretto");
  add_component_options(*command, options->files, options->components);
  add_register_options(*command, options->files, options->registered);
  command->add_flag("--groups", options->groups, "errors of each framework, GPU and precision");
  command->add_flag("--rows", options->rows, "each row");
  command->add_flag("--verbose", options->verbose, "all tables: groups, assumptions, memory, pairs, rankings");
  add_color_option(*command, options->color);
  command->add_flag("--intervals", options->asked.intervals,
                    "80 % intervals of predictions, and how many rows are inside");
  command->add_flag("--leave-out", options->asked.leave_out, "each model by constants fitted to the others");
  add_json_option(*command, options->files, options->json);
  options->files.add_output(
      *command, "--html", options->html,
      "write a page with the predictions as points and all tables: one file, opens in any browser");
  command->callback([options] { run(*options); });
}

}  // namespace stretto::cli
