#include "cli/registered.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/budget.hpp"
#include "base/printable.hpp"
#include "calibrate/calibrate.hpp"
#include "cli/progress.hpp"
#include "cli/version.hpp"
#include "report/table.hpp"
#include "validate/registered.hpp"

namespace stretto::cli {

void add_register_options(CLI::App& command, Files& files, RegisterOptions& options) {
  files.add_output(command, "--register", options.file,
                   "predict all recipes that ship, and write the predictions as CSV, to be scored when steps appear");
  files.add_input(command, "--score", options.score, "a registered file: how its predictions of the steps came out");
}

void register_recipes(const RegisterOptions& options) {
  Progress progress;
  progress.begin("predicting all recipes");
  std::vector<std::string> left_out;
  const std::vector<validate::RegisteredStep> steps =
      validate::register_recipes(fmt::format("{} {}", kVersion, kGit), calibrate::today(), left_out,
                                 [&](const std::string& line) { progress.show(line); });
  progress.clear();
  write_text(options.file, validate::text_of(steps));
  std::cout << fmt::format("{} recipes registered\n", steps.size());
  for (const std::string& line : left_out) std::cout << "left out: " << printable(line) << "\n";
}

void show_score(const RegisterOptions& options, const std::string& published, const Output& json) {
  Budget budget(options.score);
  const std::vector<validate::RegisteredStep> registered =
      validate::read_registered(read_text(options.score, budget), options.score);
  const std::vector<validate::PublishedStep> steps = validate::read_published(published);
  const std::vector<validate::ScoredStep> scored = validate::score(registered, steps);
  Table table({"step", "recipe", "registered", "measured s", "predicted s", "error", "80 % interval s", "inside"});
  nlohmann::json rows = nlohmann::json::array();
  double mean = 0, bias = 0;
  std::size_t inside = 0;
  for (const validate::ScoredStep& one : scored) {
    const validate::RegisteredStep& r = one.registered;
    table.add_row({printable(one.id), printable(r.recipe), printable(r.date), fmt::format("{:.4f}", one.measured_s),
                   fmt::format("{:.4f}", r.predicted_s), fmt::format("{:+.1f} %", 100 * one.error()),
                   fmt::format("{:.4f} to {:.4f}", r.low_s, r.high_s), one.is_inside() ? "yes" : "no"});
    rows.push_back({{"id", one.id},
                    {"recipe", r.recipe},
                    {"date", r.date},
                    {"version", r.version},
                    {"scenario", r.scenario},
                    {"measured_s", one.measured_s},
                    {"predicted_s", r.predicted_s},
                    {"low_s", r.low_s},
                    {"high_s", r.high_s},
                    {"error_pct", 100 * one.error()},
                    {"inside", one.is_inside()}});
    mean += std::abs(one.error()) / double(scored.size());
    bias += one.error() / double(scored.size());
    inside += one.is_inside() ? 1 : 0;
  }
  if (table.rows() > 0) std::cout << table.text() << "\n";
  std::cout << fmt::format("{} of {} steps were registered", scored.size(), steps.size());
  if (!scored.empty())
    std::cout << fmt::format(": mean error {:.1f} %, bias {:+.1f} %, {} inside their interval", 100 * mean, 100 * bias,
                             inside);
  std::cout << "\n";
  write_json(json, {{"scored", std::move(rows)}, {"steps", steps.size()}});
}

}  // namespace stretto::cli
