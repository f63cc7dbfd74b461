#include "validate/registered.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/checksum.hpp"
#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "habits/recipes.hpp"
#include "interchange/perf_recipes.hpp"
#include "predict/quick_step.hpp"

namespace stretto::validate {
namespace {

const std::vector<std::string>& columns() {
  static const std::vector<std::string> kColumns = {
      "recipe", "platform", "gpus", "precision", "task",        "layers", "hidden", "seq_len",  "gbs",     "tp",
      "pp",     "cp",       "ep",   "scenario",  "predicted_s", "low_s",  "high_s", "peak_GiB", "version", "date"};
  return kColumns;
}

// Sets what a step is found by.
void describe(RegisteredStep& step, const Scenario& scenario) {
  step.layers = scenario.model.num_layers;
  step.hidden = scenario.model.hidden_size;
  step.seq_len = scenario.model.seq_length;
  step.gbs = scenario.training.global_batch_size;
  step.tp = scenario.parallel.tensor_model_parallel_size;
  step.pp = scenario.parallel.pipeline_model_parallel_size;
  step.cp = scenario.parallel.context_parallel_size;
  step.ep = scenario.parallel.expert_model_parallel_size;
}

auto found_by(const RegisteredStep& step) {
  return std::tie(step.platform, step.gpus, step.precision, step.task, step.layers, step.hidden, step.seq_len, step.gbs,
                  step.tp, step.pp, step.cp, step.ep);
}

RegisteredStep predicted(const PerfRecipe& recipe) {
  RegisteredStep step;
  step.recipe = recipe.name;
  step.platform = platform_of_gpu(recipe.key.gpu);
  if (step.platform.empty()) throw input_error("no platform of " + recipe.key.gpu);
  step.precision = recipe.key.precision;
  step.task = recipe.key.task == "peft" ? "lora" : recipe.key.task;
  step.gpus = recipe.gpus;
  const std::string text = habits::text_of(habits::shipped_recipe(recipe), step.platform);
  Checksum checksum;
  checksum.add(text);
  step.scenario = checksum.digits();
  const Scenario scenario = parse_scenario(text, recipe.name);
  describe(step, scenario);
  const sim::Platform platform = sim::read_platform(scenario.platform);
  const predict::QuickStep quick(scenario);
  step.predicted_s = quick.step_s(platform, scenario.framework);
  predict::Spread spread = predict::spread_of(quick, platform, scenario.framework, step.predicted_s);
  predict::add_containers(spread);
  step.low_s = step.predicted_s * std::exp(-spread.down);
  step.high_s = step.predicted_s * std::exp(spread.up);
  step.peak_GiB = double(quick.memory(platform).predicted_bytes()) / double(1 << 30);
  return step;
}

}  // namespace

std::vector<RegisteredStep> register_recipes(const std::string& version, const std::string& date,
                                             std::vector<std::string>& left_out,
                                             const std::function<void(const std::string& line)>& progress) {
  const std::vector<PerfRecipe>& recipes = perf_recipes();
  std::vector<std::optional<RegisteredStep>> steps(recipes.size());
  std::vector<std::string> why(recipes.size());
  std::mutex telling;
  std::size_t done = 0;
  parallel_each(std::ssize(recipes), [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    try {
      steps[i] = predicted(recipes[i]);
    } catch (const Error& error) {
      why[i] = error.what();
    }
    const std::lock_guard lock(telling);
    if (progress) progress(fmt::format("{} of {} recipes predicted", ++done, recipes.size()));
  });
  std::vector<RegisteredStep> all;
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    if (!steps[i]) {
      left_out.push_back(recipes[i].name + ": " + why[i]);
      continue;
    }
    steps[i]->version = version;
    steps[i]->date = date;
    all.push_back(std::move(*steps[i]));
  }
  return all;
}

std::string text_of(const std::vector<RegisteredStep>& steps) {
  std::string text = fmt::format("{}\n", fmt::join(columns(), ","));
  for (const RegisteredStep& s : steps)
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.5g},{:.5g},{:.5g},{:.4g},{},{}\n", s.recipe,
                        s.platform, s.gpus, s.precision, s.task, s.layers, s.hidden, s.seq_len, s.gbs, s.tp, s.pp, s.cp,
                        s.ep, s.scenario, s.predicted_s, s.low_s, s.high_s, s.peak_GiB, s.version, s.date);
  return text;
}

std::vector<RegisteredStep> read_registered(std::string_view text, const std::string& name) {
  std::vector<RegisteredStep> steps;
  read_csv(text, name, columns(), [&](const CsvRow& row) {
    std::size_t column = 0;
    const auto word = [&] { return std::string(row.text(column++)); };
    const auto count = [&] { return row.count(column++); };
    const auto number = [&] { return row.number(column++); };
    RegisteredStep& s = steps.emplace_back();
    s.recipe = word(), s.platform = word(), s.gpus = count(), s.precision = word(), s.task = word();
    for (std::int64_t* size : {&s.layers, &s.hidden, &s.seq_len, &s.gbs, &s.tp, &s.pp, &s.cp, &s.ep}) *size = count();
    s.scenario = word();
    for (double* value : {&s.predicted_s, &s.low_s, &s.high_s, &s.peak_GiB}) *value = number();
    s.version = word(), s.date = word();
  });
  return steps;
}

std::vector<ScoredStep> score(const std::vector<RegisteredStep>& registered, const std::vector<PublishedStep>& steps) {
  std::vector<ScoredStep> scored;
  for (const PublishedStep& step : steps) {
    if (!step.skipped.empty()) continue;
    RegisteredStep of;
    of.platform = step.platform;
    of.gpus = step.gpus;
    of.precision = habits::recipe_precision(step.precision);
    of.task = step.task.empty() ? "pretrain" : step.task;
    try {
      describe(of, parse_scenario(step.scenario_text, step.id));
    } catch (const Error&) {
      continue;  // no scenario, so no prediction is of it
    }
    const auto found = std::find_if(registered.begin(), registered.end(),
                                    [&](const RegisteredStep& one) { return found_by(one) == found_by(of); });
    if (found != registered.end()) scored.push_back({step.id, *found, step.step_s});
  }
  return scored;
}

}  // namespace stretto::validate
