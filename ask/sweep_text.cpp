#include "ask/sweep_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/printable.hpp"
#include "base/shell.hpp"
#include "report/layout_text.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"
#include "report/words.hpp"
#include "sweep/charts.hpp"
#include "sweep/tables.hpp"

namespace stretto::ask {
namespace {

HtmlStep html_step(const FullStep& full, bool with_timeline) {
  const predict::PredictedStep& of = full.step;
  HtmlStep step;
  step.row.mode = layout_text(of.prediction.parallel);
  step.row.ranks = of.prediction.ranks;
  step.row.predicted_ms = of.prediction.step_ms;
  step.row.predicted = of.prediction.breakdown;
  step.layout = fmt::format("micro-batches of {} GPUs", of.prediction.devices);
  for (const ExposedPart& part : of.prediction.exposed) step.communicators.push_back(part.communicator);
  if (!with_timeline) return step;
  step.row.operations = operation_times(of.schedule, of.result.programs, {&of.result.timeline, 1}, {}, {});
  step.predicted = excerpt(of.schedule, of.result.programs, of.result.timeline);
  step.memory = of.prediction.memory;
  return step;
}

// Returns where the time of steps goes: shares of each step.
Table limits_table(const std::vector<Prediction>& steps) {
  Table table({"layout", "GPUs", "step", "compute", "exposed", "most of it", "bubble", "host", "memory", "fits"});
  for (const Prediction& p : steps) {
    const auto share = [&](double ms) { return percent_text(ms / p.step_ms); };
    Coord most = Coord::dp;
    for (const Coord axis : {Coord::tp, Coord::pp, Coord::cp, Coord::ep})
      if (p.exposed_ms(axis) > p.exposed_ms(most)) most = axis;
    table.add_row({layout_text(p.parallel, p.micro_batches), std::to_string(p.devices), time_text(p.step_ms),
                   share(p.breakdown.compute), share(p.breakdown.exposed),
                   p.exposed_ms(most) > 0 ? fmt::format("{} {}", name_of(most), share(p.exposed_ms(most))) : "",
                   share(p.breakdown.bubble - p.breakdown.host), share(p.breakdown.host),
                   size_text(double(p.memory.predicted_bytes())), name_of(p.memory.fit())});
  }
  return table;
}

Table limits_table(const std::vector<FullStep>& steps) {
  std::vector<Prediction> predictions;
  for (const FullStep& full : steps) predictions.push_back(full.step.prediction);
  return limits_table(predictions);
}

// Returns a line that compares the scenario as it is with the first point: a recipe with the best layout.
std::string recipe_text(const Prediction& own, const Prediction& first, const std::string& first_name) {
  const double after = first.throughput.tokens_per_s_per_device / own.throughput.tokens_per_s_per_device - 1;
  return fmt::format("the scenario as it is, {} on {} GPUs: {}, {}{}\n", layout_text(own.parallel, own.micro_batches),
                     own.devices, time_text(own.step_ms),
                     after < 0 ? fmt::format("{:.1f} % faster than the {}", -100 * after / (1 + after), first_name)
                               : fmt::format("{:.1f} % slower than the {}{}", 100 * after, first_name,
                                             after < sweep::kTie ? " (tie)" : ""),
                     own.memory.fit() == Fit::fits    ? ""
                     : own.memory.fit() == Fit::tight ? "; its memory is tight"
                                                      : "; it does not fit");
}

// Returns the options of the user's own that a command of one point needs, too; a later --set replaces an earlier one.
std::string own_options(const SweepRequest& request, const sweep::Point& point) {
  std::string text;
  if (point.platform.empty() && !request.platform.empty()) text += " --platform " + in_shell(request.platform);
  for (const std::string& set : request.set) text += " --set " + in_shell(set);
  return text;
}

// The parts that the text and the page have in common.
struct Parts {
  std::string first_name, ranked, recipe, front_name, most_gains;
  bool has_several = false;
  Table best{{}}, limits{{}}, pareto{{}}, gains{{}}, scaling{{}}, scaling_limits{{}};
};

Parts parts_of(const SweepAnswer& answer, const sweep::Space& space) {
  Parts parts;
  if (answer.order.empty()) return parts;
  const std::vector<sweep::Point>& points = answer.result.points;
  parts.first_name = answer.ranking->first_name();
  parts.has_several = answer.ranking->has_several_gpus;
  parts.ranked = sweep::ranking_text(*answer.ranking, points);
  parts.best = sweep::points_table(space, answer.result, answer.order);
  parts.limits = limits_table(answer.full);
  if (answer.own)
    parts.recipe = recipe_text(*answer.own, answer.full.front().step.prediction, parts.first_name);
  else if (!answer.why_no_own.empty())
    parts.recipe = "the scenario as it is cannot be predicted: " + answer.why_no_own + "\n";
  if (!answer.front.empty()) parts.pareto = sweep::points_table(space, answer.result, answer.front);
  // A point that is slower by its bound may need less memory than all that were simulated.
  const bool leaves_out = std::any_of(points.begin(), points.end(),
                                      [](const sweep::Point& p) { return p.status == sweep::Status::slower; });
  parts.front_name =
      leaves_out ? "Pareto front of the points that were simulated; --all simulates the others too" : "Pareto front";
  parts.most_gains = "of the keys that were not searched, these gain most on the " + parts.first_name;
  // A change that a table would print as 0 is no advice.
  constexpr double kLeast = 0.0005;
  std::vector<sweep::SingleChange> gains = answer.changes;
  const double step_ms = points[answer.order.front()].step_ms;
  std::erase_if(gains, [&](const sweep::SingleChange& change) { return change.step_ms > (1 - kLeast) * step_ms; });
  if (!gains.empty()) parts.gains = sweep::changes_sheet(gains, step_ms).table();
  if (!answer.by_gpus.empty()) parts.scaling = sweep::points_table(space, answer.result, answer.by_gpus);
  parts.scaling_limits = limits_table(answer.scales);
  return parts;
}

// Returns the first point as a sentence, or that there is none.
std::string finding_of(const SweepAnswer& answer, const SweptSpace& space) {
  const std::string of = printable(model_in_words(answer.scenario) + " on ");
  const std::string platform = printable(platform_in_words(answer.platform));
  if (answer.full.empty()) return of + platform + ": no point was simulated";
  const Prediction& p = answer.full.front().step.prediction;
  return fmt::format("{} a step of {}{} × {}: {}", short_time(p.step_ms), of, p.devices,
                     printable(platform_in_words(p.platform)),
                     sweep::name_of_layout(space.space(), answer.result.points[answer.order.front()]));
}

// Returns the finding in two lines: the step of the first point, its layout, and its figures.
std::string finding_text(const SweepAnswer& answer, const SweptSpace& space, const Ink& ink) {
  const Prediction& p = answer.full.front().step.prediction;
  std::string text = wrapped(finding_of(answer, space), static_cast<std::size_t>(ink.columns), 2);
  text = ink.bold(text.substr(0, text.size() - 1)) + "\n";
  const double GiB = double(1 << 30);
  std::string figures = short_count(p.throughput.tokens_per_s) + " tokens/s";
  if (p.throughput.mfu) figures += " · MFU " + percent_text(*p.throughput.mfu);
  if (p.memory.device_bytes > 0)
    figures +=
        fmt::format(" · {} of {} GiB{}", three_digits(double(p.memory.predicted_bytes()) / GiB),
                    three_digits(double(p.memory.device_bytes) / GiB), p.memory.fit() == Fit::tight ? ", tight" : "");
  return text + "  " + figures + "\n";
}

// Returns lines with the commands of the first point, and of the fastest where it is another.
std::string commands_text(const SweepAnswer& answer, const SweptSpace& space) {
  const std::string& command = space.swept.command;
  const std::string first_name = answer.ranking->first_name();
  const std::vector<sweep::Point>& points = answer.result.points;
  const sweep::Point &first = points[answer.order.front()], &fastest = points[answer.ranking->fastest];
  const bool is_planned = space.swept.text_of != nullptr;
  std::string text;
  if (!is_planned)
    text = "\nthe " + first_name + ": " + command + own_options(space.request, first) + " " +
           sweep::set_options(first) + "\n";
  else if (command.empty())
    text = "\n-o FILE writes the " + first_name + " as a scenario\n";
  else
    text = "\nthe " + first_name + ": " + command + "\n";
  if (answer.ranking->fastest != answer.ranking->first)
    text += fmt::format("the fastest, on {} GPUs: {}{}\n", fastest.gpus,
                        is_planned ? std::string() : command + own_options(space.request, fastest) + " ",
                        sweep::set_options(fastest));
  return text;
}

}  // namespace

std::string text_of(const SweepAnswer& answer, const SweptSpace& space, const SweepShown& shown) {
  constexpr std::size_t kShown = 5, kOfFront = 3;
  const auto columns = static_cast<std::size_t>(shown.ink.columns);
  const sweep::Space& axes = space.space();
  const auto some_of = [&](std::vector<std::size_t> points, std::size_t most) {
    if (!shown.verbose && points.size() > most) points.resize(most);
    return points;
  };
  std::string text;
  if (!answer.result.complete)
    text += fmt::format("interrupted: these are the points so far{}\n",
                        shown.is_kept ? "; --resume goes on with the others" : "");
  if (answer.order.empty() && space.request.shards > 1) text += sweep::why_none(answer.result) + "\n";
  if (!answer.order.empty()) {
    const Parts parts = parts_of(answer, axes);
    text += finding_text(answer, space, shown.ink) + "\n";
    if (parts.has_several) text += wrapped(parts.ranked, columns, 2) + "\n";
    if (const std::size_t tied = sweep::ties(answer.result, answer.order); tied > 1)
      text += fmt::format("{} of the best tie: predictions cannot rank what differs by less than {}\n", tied,
                          percent_text(sweep::kTie));
    const std::vector<std::size_t> best = some_of(answer.order, kShown);
    text += sweep::points_table(axes, answer.result, best).text();
    if (best.size() < answer.order.size())
      text += fmt::format("and {} more: --verbose\n", answer.order.size() - best.size());
    if (shown.verbose) text += "\n" + parts.limits.text();
    // The front from the first layout on that the table above does not have.
    std::vector<std::size_t> front;
    std::copy_if(answer.front.begin(), answer.front.end(), std::back_inserter(front),
                 [&](std::size_t i) { return shown.verbose || std::find(best.begin(), best.end(), i) == best.end(); });
    if (!front.empty() && answer.front.size() > 1) {
      if (front.front() != best.front()) front.insert(front.begin(), best.front());
      text += fmt::format("\nless memory, {}{}\n", parts.has_several ? "less efficient" : "slower",
                          shown.verbose ? " (" + parts.front_name + ")" : "") +
              sweep::points_table(axes, answer.result, some_of(front, kOfFront + 1)).text();
    }
    if (!parts.recipe.empty()) text += "\n" + wrapped(parts.recipe.substr(0, parts.recipe.size() - 1), columns, 2);
    if (parts.gains.rows() > 0) text += "\nthen change\n" + parts.gains.text();
    if (parts.scaling.rows() > 0)
      text += "\nby the number of GPUs:\n" + parts.scaling.text() + "\n" + parts.scaling_limits.text();
    text += commands_text(answer, space);
  }
  text += "\n" +
          (shown.verbose
               ? sweep::summary_text(answer.result, answer.combinations) + fmt::format("{:.1f} s\n", answer.seconds)
               : fmt::format("{} in {:.1f} s (--verbose: why)\n", sweep::counts_text(answer.result), answer.seconds));
  const std::string searched = sweep::not_searched(axes, space.scenario());
  text += wrapped(shown.verbose ? searched : searched.substr(0, searched.find("; ")), columns, 2);
  if (!answer.megatron.empty())
    text += shown.megatron
                ? "\n" + answer.megatron
                : std::string("--megatron: the ") + answer.ranking->first_name() + " as flags of Megatron-LM\n";
  for (const std::string& note : answer.notes) text += wrapped("note: " + printable(note), columns, 6);
  return text;
}

HtmlReport page_of(const SweepAnswer& answer, SweptSpace& space) {
  const Parts parts = parts_of(answer, space.space());
  HtmlReport report;
  report.title = finding_of(answer, space);
  report.about = {sweep::summary_text(answer.result, answer.combinations),
                  sweep::not_searched(space.space(), space.scenario())};
  if (!parts.ranked.empty()) report.about.push_back(parts.ranked);
  report.summary = parts.best;
  for (const std::string& note : answer.notes) report.remarks.push_back("note: " + note);
  if (auto plot = sweep::pareto_plot(space.space(), answer.result, answer.front, answer.own ? &*answer.own : nullptr))
    report.plots.push_back(*plot);
  for (const Plot& plot : sweep::scaling_plots(space.space(), answer.result, answer.by_gpus, answer.scales))
    report.plots.push_back(plot);
  report.tables.push_back(
      {"limits", "Where the time goes", "The best points, simulated in full.", limits_table(answer.full)});
  if (answer.front.size() > 1)
    report.tables.push_back(
        {"pareto", "The " + parts.front_name,
         fmt::format("No other point is {} with less memory.", parts.has_several ? "more efficient" : "faster"),
         parts.pareto});
  if (parts.gains.rows() > 0)
    report.tables.push_back({"changes", "One further change", "Simulated: " + parts.most_gains + ".", parts.gains});
  if (!parts.recipe.empty()) report.remarks.push_back(parts.recipe);
  if (parts.scaling.rows() > 0) {
    report.tables.push_back({"scaling", "By the number of GPUs", "The best point of each number.", parts.scaling});
    report.tables.push_back({"scaling-limits", "What stays hidden on more GPUs",
                             "Where the time of the best point of each number of GPUs goes.", parts.scaling_limits});
  }
  for (const FullStep& one : answer.full) {
    const bool is_in_full = !one.step.result.timeline.rows.empty();
    report.steps.push_back(html_step(one, is_in_full && &one == &answer.full.front()));
  }
  report.device_bytes = space.platform().memory_bytes;
  return report;
}

}  // namespace stretto::ask
