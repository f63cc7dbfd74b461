#include "validate/validation_screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "base/printable.hpp"
#include "report/table.hpp"
#include "report/units.hpp"
#include "report/words.hpp"

namespace stretto::validate {
namespace {

// A histogram has a column for every two percent of error, from −52 % to +24 %; errors beyond are in the last column.
constexpr int kFirst_pct = -52, kColumn_pct = 2, kBins = 39;
constexpr int kTick_pct = 10;
constexpr std::size_t kRowsOfGpus = 9, kGroupsOfEnd = 3, kLeastSteps = 5;
constexpr double kNear = 0.10;

std::string padded_to(const std::string& text, std::size_t width) {
  const std::size_t has = display_width(text);
  return text + std::string(has < width ? width - has : 0, ' ');
}

// Errors of steps, ascending by size, with their mean.
struct ErrorsOf {
  std::vector<double> sizes;
  double bias = 0;
  std::array<int, kBins> bins{};

  void add(double error) {
    sizes.push_back(std::abs(error));
    bias += error;
    const double column = std::floor((100 * error - kFirst_pct) / kColumn_pct);
    ++bins[static_cast<std::size_t>(std::clamp(column, 0.0, double(kBins - 1)))];
  }
  double mean() const {
    double sum = 0;
    for (const double size : sizes) sum += size;
    return sum / double(sizes.size());
  }
};

std::string histogram(const ErrorsOf& of, const Ink& ink) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kSigns[] = {".", ":", "-", "=", "+", "*", "#", "@"};
  const int most = *std::max_element(of.bins.begin(), of.bins.end());
  std::string text;
  for (const int count : of.bins) {
    const auto level = static_cast<std::size_t>(7.0 * count / most);
    text += count == 0 ? " " : ink.on() ? kBlocks[level] : kSigns[level];
  }
  return text;
}

// Returns the numbers above the columns of histograms, each ending where its column is.
std::string ticks() {
  std::string text(kBins, ' ');
  for (int pct = -50; pct <= 20; pct += kTick_pct) {
    const std::string number = pct == 0 ? "0" : fmt::format("{:+d}", pct);
    const auto at = static_cast<std::size_t>((pct - kFirst_pct) / kColumn_pct);
    if (at + 1 >= number.size()) text.replace(at + 1 - number.size(), number.size(), number);
  }
  return text;
}

std::string group_line(const char* what, const ValidatedGroup& group) {
  return fmt::format("  {}{}{:>4} step{}  {:>7}\n", padded_to(what, 16), padded_to(printable(group.name), 50),
                     group.steps.size(), group.steps.size() == 1 ? " " : "s",
                     percent_text(group.errors[static_cast<std::size_t>(Fitted::shipped)].mean_abs));
}

// Returns the groups with the least and with the largest mean error.
std::string groups_text(const Validation& validation) {
  std::vector<const ValidatedGroup*> groups;
  for (const ValidatedGroup& group : validation.groups)
    if (group.steps.size() >= kLeastSteps) groups.push_back(&group);
  const auto mean = [](const ValidatedGroup* group) {
    return group->errors[static_cast<std::size_t>(Fitted::shipped)].mean_abs;
  };
  std::stable_sort(groups.begin(), groups.end(), [&](auto* a, auto* b) { return mean(a) < mean(b); });
  if (groups.size() < 2) return "";
  const std::size_t shown = std::min(kGroupsOfEnd, groups.size() / 2);
  std::string text = "\n";
  for (std::size_t i = 0; i < shown; ++i) text += group_line(i == 0 ? "best known" : "", *groups[i]);
  for (std::size_t i = 0; i < shown; ++i)
    text += group_line(i == 0 ? "not yet right" : "", *groups[groups.size() - 1 - i]);
  return text;
}

}  // namespace

std::string first_screen(const Validation& validation, const Ink& ink) {
  ErrorsOf all;
  std::map<std::string, ErrorsOf> by_platform;
  std::size_t skipped = 0;
  for (const ValidatedStep& step : validation.steps) {
    if (!step.published.skipped.empty()) {
      ++skipped;
      continue;
    }
    const double error = step.error(Fitted::shipped);
    all.add(error);
    by_platform[step.published.platform].add(error);
  }
  const std::string not_predicted = skipped == 0 ? "" : fmt::format("{} not predicted: --verbose says why\n", skipped);
  const std::string hints =
      ink.faint("--groups: each framework and GPU   --rows: each step   --intervals: how sure") + "\n" +
      ink.faint("--leave-out: models that no constant was fitted to   --verbose: all tables") + "\n";
  if (all.sizes.empty()) return "no published step was predicted\n" + not_predicted + hints;
  std::sort(all.sizes.begin(), all.sizes.end());
  const auto near = std::upper_bound(all.sizes.begin(), all.sizes.end(), kNear) - all.sizes.begin();
  std::string text =
      ink.bold(fmt::format("{} published step{}: half within {}, {:.0f} % within {:.0f} %, mean error {}",
                           all.sizes.size(), all.sizes.size() == 1 ? "" : "s",
                           percent_text(all.sizes[(all.sizes.size() - 1) / 2]),
                           100 * double(near) / double(all.sizes.size()), 100 * kNear, percent_text(all.mean()))) +
      "\n\n";
  std::vector<const std::pair<const std::string, ErrorsOf>*> rows;
  std::size_t width = 3;
  for (const auto& row : by_platform) {
    rows.push_back(&row);
    width = std::max(width, display_width(printable(platform_in_short(row.first))));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](auto* a, auto* b) { return a->second.sizes.size() > b->second.sizes.size(); });
  text += ink.faint("  " + padded_to("GPU", width) + "  steps  " + ticks() + "   mean error    bias") + "\n";
  for (std::size_t i = 0; i < std::min(kRowsOfGpus, rows.size()); ++i) {
    const auto& [platform, of] = *rows[i];
    text += fmt::format("  {}  {:>5}  {}   {:>10}  {:>6}\n", padded_to(printable(platform_in_short(platform)), width),
                        of.sizes.size(), histogram(of, ink), percent_text(of.mean()),
                        change_text(of.bias / double(of.sizes.size())));
  }
  if (rows.size() > kRowsOfGpus) text += fmt::format("  {} more GPUs: --groups\n", rows.size() - kRowsOfGpus);
  return text + groups_text(validation) + "\n" + not_predicted + hints;
}

}  // namespace stretto::validate
