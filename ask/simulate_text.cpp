#include "ask/simulate_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ask/first_screen.hpp"
#include "ask/modes_text.hpp"
#include "ask/studio_address.hpp"
#include "report/critical_path.hpp"
#include "report/layout_text.hpp"
#include "report/prediction.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"

namespace stretto::ask {
namespace {

std::string text_of(const Assumptions& assumed) {
  std::string text = assumed.answer.summary() + "\n", readings;
  for (std::size_t i = 0; i < assumed.readings_ms.size(); ++i)
    if (assumed.readings_ms[i] > 0)
      readings += fmt::format("{}{} {}", readings.empty() ? "" : ", ", assumed.answer.readings[i].what,
                              time_text(assumed.readings_ms[i]));
  if (!readings.empty())
    text += fmt::format("other readings of what is assumed: {} to {} ({})\n", time_text(assumed.least_ms),
                        time_text(assumed.most_ms), readings);
  return text;
}

// Returns the effect of each change, without how sure it is: a table that has room next to a chart.
Table effects_table(const std::vector<sweep::SingleChange>& changes, double step_ms) {
  Table table({"one change", "step", "change"});
  for (const sweep::SingleChange& change : changes)
    table.add_row(
        {change.what, time_text(change.step_ms), fmt::format("{:+.1f} %", 100 * (change.step_ms / step_ms - 1))});
  return table;
}

std::string text_of(const StepLimits& limits, double step_ms) {
  constexpr std::size_t kShown = 3;
  std::vector<sweep::SingleChange> best = limits.changes;
  best.resize(std::min(kShown, best.size()));
  return "\n" + path_text(limits.path) + "\n\nhow the step changes with each number:\n\n" +
         sensitivity_sheet(limits.numbers).table().text() + "\n" +
         machines_sheet(limits.machines, step_ms).table().text() + "\n" +
         (best.empty() ? "no single change of the scenario makes it faster\n"
                       : changes_sheet(best, step_ms).table().text());
}

std::string text_of(const predict::FitSearch& search) {
  std::string text =
      search.fitting.empty() ? "no change that was tried makes it fit\n" : fitting_sheet(search).table().text();
  if (!search.complete) text += fmt::format("not all combinations were tried, but {}\n", search.tried);
  return text;
}

// A table as the page of --html has it, and the line above it where it is printed.
struct Section {
  HtmlTable table;
  std::string above;
  bool is_text = false;  // the lines above say all that is printed
};

std::vector<Section> sections_of(const Modes& m, double step_ms) {
  std::vector<Section> sections = {
      {{"modes", "Overlap modes",
        "The step of each mode alone, and the parts that it consists of; of plain: its share of the plain schedule's "
        "step.",
        modes_sheet(m.modes).table()},
       ""}};
  std::vector<Advice> advice;  // on every mode but the plain schedule
  for (const predict::PredictedMode& mode : m.modes)
    if (&mode != &m.modes.front()) advice.push_back(mode.advice);
  if (!advice.empty())
    sections.push_back(
        {{"advice", "Which mode to use", "Each mode alone against the plain schedule.", advice_table(advice)}, ""});
  if (const std::string remedies = predict::remedies_text(m.remedies); !remedies.empty())
    sections.push_back(
        {{"remedies", "What would make a losing mode win",
          "Of modes that lose, the change with which the mode's step is shortest and beats the plain schedule.",
          predict::remedies_sheet(m.remedies).table()},
         remedies,
         true});
  if (!m.knobs.empty())
    sections.push_back(
        {{"without", "What each knob brings",
          "Of " + predict::knobs_text(step_ms) + ". What knobs save does not add up.", knobs_sheet(m.knobs).table()},
         predict::knobs_text(step_ms)});
  if (!m.recipes.empty())
    sections.push_back({{"recipes", "What a lower precision would bring",
                         "The step with " + predict::recipes_text() + ".", recipes_sheet(m.recipes).table()},
                        predict::recipes_text()});
  if (!m.left_out.empty())
    sections.push_back({{"left-out", "Modes that cannot act here", "The first closed gate of each, and why.",
                         predict::left_out_sheet(m.left_out).table()},
                        "modes that cannot act here:"});
  return sections;
}

// Returns the row of bars of a step.
HtmlStep bars_of(const std::string& mode, double step_ms, const BreakdownMs& breakdown, const Prediction& p) {
  HtmlStep step;
  step.row.mode = mode;
  step.row.ranks = p.ranks;
  step.row.predicted_ms = step_ms;
  step.row.predicted = breakdown;
  step.layout = layout_text(p.parallel, p.micro_batches);
  return step;
}

HtmlStep step_with_timeline(const predict::PredictedStep& of) {
  const Schedule& schedule = of.schedule;
  HtmlStep step = bars_of(schedule.name, of.prediction.step_ms, of.prediction.breakdown, of.prediction);
  step.row.operations = operation_times(schedule, of.result.programs, {&of.result.timeline, 1}, {}, {});
  for (const Communicator& communicator : schedule.communicators) step.communicators.push_back(communicator.name);
  step.predicted = excerpt(schedule, of.result.programs, of.result.timeline);
  step.memory = of.prediction.memory;
  return step;
}

// Returns the finding as a sentence: the step, whether it fits, where its time goes and what overlap is worth.
std::string finding_of(const Asked& asked, const SimulateAnswer& answer) {
  const Prediction& p = answer.step.prediction;
  std::string text = fmt::format("{} takes {} a step{}", title_of(asked, answer), short_time(p.step_ms),
                                 p.memory.device_bytes == 0     ? ""
                                 : p.memory.fit() == Fit::fits  ? " and fits"
                                 : p.memory.fit() == Fit::tight ? "; its memory is tight"
                                                                : " and does not fit");
  text += fmt::format(". Computing is {:.0f} % of it", 100 * p.breakdown.compute / p.step_ms);
  if (answer.modes)
    if (const double saved = 1 - p.step_ms / answer.modes->modes.front().step_ms; std::abs(saved) >= 0.005)
      text += fmt::format("; overlap {} {:.0f} %", saved > 0 ? "saves" : "costs", 100 * std::abs(saved));
  return text + ".";
}

}  // namespace

std::string details_text(const SimulateAnswer& answer) {
  const Prediction& p = answer.step.prediction;
  std::string text =
      about_text(p) + "\n\n" + prediction_table(p).text() + "\n" + memory_tables_text(p.memory) + "\n" +
      limits_text(p) +
      fmt::format("\n{} operations simulated in {:.4f} s; with building and verifying the schedule {:.4f} s\n",
                  p.operations, p.simulate_s, p.whole_s);
  for (const std::string& note : p.notes) text += "note: " + note + "\n";
  return text;
}

std::string further_text(const SimulateAnswer& answer, bool verbose, std::size_t columns) {
  const Prediction& p = answer.step.prediction;
  std::string text;
  if (answer.assumed) text += "\n" + text_of(*answer.assumed);
  if (answer.modes && !verbose) text += "\n" + modes_text(*answer.modes, p.step_ms, columns);
  if (answer.modes && verbose)
    for (const Section& section : sections_of(*answer.modes, p.step_ms))
      text += "\n" + section.above + (section.above.empty() ? "" : "\n") +
              (section.is_text ? "" : section.table.table.text());
  if (answer.limits) text += text_of(*answer.limits, p.step_ms);
  if (answer.run) text += "\n" + predict::run_table(*answer.run).text();
  if (answer.fits_with) text += "\n" + text_of(*answer.fits_with);
  return text;
}

std::string list_of(const SimulateAnswer& answer) { return answer.assumed ? answer.assumed->answer.list() : ""; }

HtmlReport page_of(const Asked& asked, const SimulateAnswer& answer) {
  const Prediction& p = answer.step.prediction;
  const sim::Platform& platform = *asked.platform;
  HtmlReport report;
  report.title = finding_of(asked, answer);
  report.studio = studio_address(asked);
  for (const Figure& figure : figures_of(answer, asked.scenario))
    report.figures.push_back({figure.what, figure.value, figure.about});
  const std::string layout = layout_of(p.parallel);
  report.about = {fmt::format("{}{} micro-batches of {} × {} tokens", layout.empty() ? "" : layout + " · ",
                              p.micro_batches, asked.scenario.training.micro_batch_size,
                              asked.scenario.model.seq_length)};
  report.summary = prediction_table(p);
  report.remarks = {about_text(p) + ", " + layout_text(p.parallel, p.micro_batches),
                    platform.date.empty()
                        ? fmt::format("platform {} ({})", platform.name, platform.device)
                        : fmt::format("platform {} ({}, {})", platform.name, platform.device, platform.date),
                    limits_text(p)};
  if (answer.limits) report.remarks.push_back(path_text(answer.limits->path));
  if (answer.fits_with) report.remarks.push_back(text_of(*answer.fits_with));
  for (const std::string& note : p.notes) report.remarks.push_back("note: " + note);
  if (answer.modes) {
    for (Section& section : sections_of(*answer.modes, p.step_ms)) report.tables.push_back(std::move(section.table));
    // Modes that are off have no bar, and the scenario has its own.
    for (const predict::PredictedMode& mode : answer.modes->modes) {
      if (mode.is_scenario || !mode.advice.off_because.empty()) continue;
      report.steps.push_back(bars_of(mode.mode, mode.step_ms, mode.breakdown, p));
      report.steps.back().communicators = mode.communicators;
    }
  }
  report.steps.push_back(step_with_timeline(answer.step));
  if (answer.limits) {
    constexpr std::size_t kShown = 5;
    std::vector<sweep::SingleChange> changes = answer.limits->changes;
    changes.resize(std::min(kShown, changes.size()));
    if (!changes.empty()) {
      report.tables.push_back({"faster", "What would make it faster", "One setting changed; only what fits.",
                               effects_table(changes, p.step_ms), true});
      report.tables.push_back({"changes", "What one changed setting brings", "Only what fits; how sure each is.",
                               changes_sheet(answer.limits->changes, p.step_ms).table()});
    }
    report.tables.push_back({"machines", "A better machine", "The step on a machine that is better in one way.",
                             machines_sheet(answer.limits->machines, p.step_ms).table()});
    report.tables.push_back({"numbers", "How the step changes with each number",
                             "Percent of the step with one percent more of the number.",
                             sensitivity_sheet(answer.limits->numbers).table()});
  }
  report.tables.push_back({"memory-parts", "Memory of the fullest " + p.device,
                           "The parts of the memory that is in use at the peak; they add up to it.",
                           memory_table(p.memory)});
  if (answer.run)
    report.tables.push_back(
        {"run", "The run", "Closed forms on top of the step, from the numbers of [run].", run_table(*answer.run)});
  report.device_bytes = platform.memory_bytes;
  return report;
}

}  // namespace stretto::ask
