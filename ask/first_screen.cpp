#include "ask/first_screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/printable.hpp"
#include "report/budget.hpp"
#include "report/units.hpp"
#include "report/words.hpp"

namespace stretto::ask {
namespace {

constexpr std::size_t kLevers = 3, kNotes = 3;
constexpr int kLeastColumns = 60;

std::string blanks(std::size_t count) { return std::string(count, ' '); }
std::string padded(const std::string& text, std::size_t width) {
  const std::size_t has = display_width(text);
  return text + blanks(has < width ? width - has : 0);
}

std::string faint_lines(const std::string& lines, const Ink& ink) {
  return ink.faint(lines.substr(0, lines.size() - 1)) + "\n";
}

// A question's scenario is named after its model and GPUs, and the title says the GPUs itself.
std::string scenario_name(const SimulateAnswer& answer) {
  const std::string& name = answer.step.prediction.scenario;
  const bool is_question = answer.assumed && answer.assumed->answer.name == name;
  return printable(model_in_words(is_question ? answer.assumed->answer.model : name));
}

std::string devices_of(const Prediction& p, const sim::Platform& platform) {
  // A platform of the user's is called by its device.
  const std::string words = platform_in_words(p.platform);
  const std::string device = printable(platform.accelerator && words == p.platform ? platform.device : words);
  return p.devices == 1 ? fmt::format("one {}", device) : fmt::format("{} × {}", p.devices, device);
}

Figure step_of(const SimulateAnswer& answer, const Scenario& scenario) {
  const Prediction& p = answer.step.prediction;
  Figure figure = {"Step", short_time(p.step_ms) + (p.steady ? "" : " (not steady)"), ""};
  if (!answer.interval) return figure;
  const StepInterval& interval = *answer.interval;
  const Unit unit = time_unit(p.step_ms);
  const std::string kind =
      scenario.framework.name.empty() ? "this kind" : printable(profile_in_words(scenario.framework.name));
  const std::string precision = predict::precision_of_products(scenario);
  figure.about =
      fmt::format("{} – {} {} (80 %); ", three_digits(interval.low_ms / unit.per_unit),
                  three_digits(interval.high_ms / unit.per_unit), unit.name) +
      (interval.published
           ? fmt::format("{} published {} step{}{}{}: {:.1f} % off", interval.published->steps, kind,
                         interval.published->steps == 1 ? "" : "s", precision.empty() ? "" : " in ", precision,
                         interval.published->mean_abs_error_pct)
           : fmt::format("no published step of {}{}{} here", kind, precision.empty() ? "" : " in ", precision));
  return figure;
}

Figure memory_of(const Prediction& p) {
  const double GiB = double(1 << 30);
  const DeviceMemory& memory = p.memory;
  Figure figure = {"Memory", "", ""};
  if (memory.device_bytes == 0) {
    figure.value = size_text(double(memory.predicted_bytes()));
    return figure;
  }
  figure.value = fmt::format("{} of {} GiB", three_digits(double(memory.predicted_bytes()) / GiB),
                             three_digits(double(memory.device_bytes) / GiB));
  constexpr double kSmall = 0.05;  // GiB: in three digits of GiB it would say little
  if (double(memory.predicted_bytes()) < kSmall * GiB)
    figure.value =
        fmt::format("{} of {}", size_text(double(memory.predicted_bytes())), size_text(double(memory.device_bytes)));
  const std::string room = three_digits(std::abs(double(memory.free_bytes())) / GiB) + " GiB";
  figure.about = memory.free_bytes() < 0      ? "does not fit: " + room + " too much"
                 : memory.fit() == Fit::tight ? "tight: " + room + " free, less than its error"
                                              : "fits, " + room + " free";
  if (memory.roles.size() > 1) figure.about += "   on " + memory.roles[memory.fullest()].role + ", the fullest";
  return figure;
}

// A change that makes the step faster: by how much, in words, and the options that do it.
struct Lever {
  double change = 0;
  std::string what, flags;
};

std::vector<Lever> levers_of(const SimulateAnswer& answer) {
  std::vector<Lever> levers;
  const double step_ms = answer.step.prediction.step_ms;
  if (answer.limits)
    for (const sweep::SingleChange& change : answer.limits->changes) {
      std::string flags;
      for (const std::string& one : change.set) flags += (flags.empty() ? "--set " : " --set ") + one;
      levers.push_back({change.step_ms / step_ms - 1, change.what, flags});
    }
  std::erase_if(levers, [](const Lever& lever) { return lever.change > -0.0005; });
  if (levers.size() > kLevers) levers.resize(kLevers);
  return levers;
}

std::string text_of(const std::vector<Lever>& levers, std::size_t columns) {
  if (levers.empty()) return "";
  std::string text = "\n  What would make it faster\n";
  for (const Lever& lever : levers) {
    const std::string line = fmt::format("  {:>8}  {}", change_text(lever.change), lever.what);
    const std::string both = padded(line, 52) + "  " + lever.flags;
    text += display_width(both) <= columns ? both + "\n" : line + "\n            " + lever.flags + "\n";
  }
  return text;
}

}  // namespace

std::string layout_of(const Parallel& p) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1) parts.push_back(fmt::format("{} {}", name, size));
  };
  add("tp", p.tensor_model_parallel_size);
  add("pp", p.pipeline_model_parallel_size);
  if (p.virtual_pipeline_model_parallel_size > 1)
    (parts.empty() ? parts.emplace_back("pp 1") : parts.back()) +=
        fmt::format(" × {} chunks", p.virtual_pipeline_model_parallel_size);
  add("cp", p.context_parallel_size);
  add("ep", p.expert_model_parallel_size);
  add("dp", p.data_parallel_size);
  return fmt::format("{}", fmt::join(parts, " · "));
}

std::vector<Figure> figures_of(const SimulateAnswer& answer, const Scenario& scenario) {
  const Prediction& p = answer.step.prediction;
  const std::string a_device = " a " + p.device;
  std::vector<Figure> figures = {step_of(answer, scenario)};
  figures.push_back({"Throughput", short_count(p.throughput.tokens_per_s) + " tokens/s",
                     p.devices > 1 ? three_digits(p.throughput.tokens_per_s_per_device) + a_device : ""});
  const auto& mfu = p.throughput.mfu_within_documents ? p.throughput.mfu_within_documents : p.throughput.mfu;
  if (mfu)
    figures.push_back({"MFU", percent_text(*mfu),
                       fmt::format("{} of {} TFLOP/s{}, {}{}", three_digits(p.throughput.TFLOPs_per_device),
                                   three_digits(p.peak.FLOPs_per_s / double(p.devices) * 1e-12), a_device,
                                   p.peak.source, p.throughput.mfu_within_documents ? ", within documents" : "")});
  figures.push_back(memory_of(p));
  if (answer.run && answer.run->elapsed_s) {
    const predict::Run& run = *answer.run;
    std::string about = run.gpu_hours ? short_count(*run.gpu_hours) + " GPU-hours" : "";
    if (run.cost) about += "   cost " + short_count(*run.cost);
    if (!run.mtbf_s) about += "   failures not counted";
    figures.push_back({"Run", three_digits(*run.elapsed_s / 86400) + " days", about});
  }
  return figures;
}

std::string title_of(const Asked& asked, const SimulateAnswer& answer) {
  const Prediction& p = answer.step.prediction;
  const std::string profile = printable(profile_in_words(asked.scenario.framework.name));
  return fmt::format("{} on {}{}{}{}", scenario_name(answer), devices_of(p, *asked.platform),
                     profile.empty() ? "" : ", ", profile, p.engine == "fluid" ? "" : ", network " + p.engine);
}

std::string first_screen(const Asked& asked, const SimulateAnswer& answer, const Ink& ink) {
  const Prediction& p = answer.step.prediction;
  const auto columns = static_cast<std::size_t>(std::max(ink.columns, kLeastColumns));
  const std::string title = title_of(asked, answer);
  const std::string layout = layout_of(p.parallel);
  const bool one_line = display_width(title) + 3 + display_width(layout) <= columns;
  std::string text = ink.bold(title);
  if (!layout.empty())
    text += one_line ? blanks(columns - display_width(title) - display_width(layout)) + layout : "\n  " + layout;
  text += "\n\n";
  const std::vector<Figure> figures = figures_of(answer, asked.scenario);
  std::size_t width = 0;
  for (const Figure& figure : figures) width = std::max(width, display_width(figure.value));
  for (const Figure& figure : figures) {
    const std::size_t before = 2 + 13 + width + 3;
    std::string about = before + display_width(figure.about) > columns
                            ? wrapped(blanks(before) + figure.about, columns, before).substr(before)
                            : figure.about + "\n";
    if (figure.what == "Memory" && p.memory.device_bytes > 0 && p.memory.fit() != Fit::fits)
      about = ink.warning(about.substr(0, about.size() - 1)) + "\n";
    const std::string line = "  " + padded(figure.what, 13) + ink.bold(figure.value);
    text += figure.about.empty() ? line + "\n" : line + blanks(width - display_width(figure.value) + 3) + about;
  }
  const std::vector<BudgetPart> parts = budget_of(p);
  const int indent = 2, bar = static_cast<int>(columns) - indent - 4;
  text += fmt::format("\n  Where {} go\n  ", short_time(p.step_ms)) + bar_text(parts, bar, ink) + "\n" +
          legend_text(parts, static_cast<int>(columns), indent, ink);
  text += text_of(levers_of(answer), columns);
  if (!p.notes.empty()) text += "\n";
  for (std::size_t i = 0; i < std::min(kNotes, p.notes.size()); ++i)
    text += wrapped("note: " + printable(p.notes[i]), columns, 6);
  if (const std::size_t more = p.notes.size() - std::min(kNotes, p.notes.size()); more > 0)
    text += fmt::format("{} more note{}: --verbose\n", more, more == 1 ? "" : "s");
  std::string further = "--verbose: every figure";
  if (!answer.modes) further = "--modes: each overlap   " + further;
  if (!answer.limits && asked.platform->accelerator) further = "--limits: what would make it faster   " + further;
  if (!answer.fits_with && p.memory.device_bytes > 0 && p.memory.fit() != Fit::fits)
    further = "--fit: changes with which it fits   " + further;
  return text + "\n" + faint_lines(wrapped(further, columns, 0), ink);
}

}  // namespace stretto::ask
