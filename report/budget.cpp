#include "report/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stretto {
namespace {

const char* exposed_name(Coord axis) {
  switch (axis) {
    case Coord::tp:
      return "exposed TP";
    case Coord::cp:
      return "exposed CP";
    case Coord::ep:
      return "exposed EP";
    case Coord::pp:
      return "exposed PP";
    default:
      return "exposed DP";
  }
}

double total_ms(const std::vector<BudgetPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const BudgetPart& part) { return sum + part.ms; });
}

// The characters of a part: coloured blocks, or its mark.
std::string cells(const BudgetPart& part, int count, const Ink& ink) {
  if (!ink.on()) return std::string(static_cast<std::size_t>(count), part.mark);
  const char* block = part.mark == '.' ? "░" : part.mark == '~' ? "▒" : "█";
  std::string text;
  for (int i = 0; i < count; ++i) text += block;
  return count > 0 ? ink.coloured(text, part.colour) : text;
}

}  // namespace

std::vector<BudgetPart> budget_of(const Prediction& p) {
  const BreakdownMs& b = p.breakdown;
  std::vector<BudgetPart> lost = {
      {p.parallel.pipeline_model_parallel_size > 1 ? "pipeline bubble" : "waiting for other GPUs", "bubble", '.',
       b.bubble - b.host},
      {"launch-bound (CPU)", "host-wait", '~', b.host},
      {"launch-order stalls", "queue-wait", '~', b.queue_wait},
      {"waiting for a core", "core-wait", '~', b.core_wait}};
  for (const Coord axis : kExposedAxes)
    lost.push_back({exposed_name(axis), std::string("comm-") + name_of(axis), '=', p.exposed_ms(axis)});
  std::erase_if(lost, [](const BudgetPart& part) { return part.ms <= 0; });
  std::stable_sort(lost.begin(), lost.end(), [](const BudgetPart& x, const BudgetPart& y) { return x.ms > y.ms; });
  lost.insert(lost.begin(), {"computing", "compute", '#', b.compute});
  return lost;
}

std::string bar_text(const std::vector<BudgetPart>& parts, int columns, const Ink& ink) {
  const double all_ms = total_ms(parts);
  std::string bar;
  double end_ms = 0;
  int drawn = 0;
  for (const BudgetPart& part : parts) {
    end_ms += part.ms;
    const int end = all_ms > 0 ? static_cast<int>(std::lround(columns * end_ms / all_ms)) : 0;
    bar += cells(part, end - drawn, ink);
    drawn = end;
  }
  return bar;
}

std::string legend_text(const std::vector<BudgetPart>& parts, int columns, int indent, const Ink& ink) {
  constexpr double kShown = 0.005;
  const double all_ms = total_ms(parts);
  std::vector<std::pair<std::string, std::string>> entries;  // plain, as printed
  double more_ms = 0;
  int more = 0;
  for (const BudgetPart& part : parts) {
    if (part.ms < kShown * all_ms && &part != &parts.front()) {
      more_ms += part.ms;
      ++more;
      continue;
    }
    const std::string text = fmt::format(" {} {}", part.what, percent_text(part.ms / all_ms));
    entries.emplace_back("#" + text, cells(part, 1, ink) + text);
  }
  if (more > 0 && more_ms >= 0.0005 * all_ms) {
    const std::string text = fmt::format("{} more {}", more, percent_text(more_ms / all_ms));
    entries.emplace_back(text, text);
  }
  std::string lines, line;
  const std::string blanks(static_cast<std::size_t>(indent), ' ');
  int width = 0;
  for (const auto& [plain, printed] : entries) {
    const int needs = static_cast<int>(display_width(plain));
    if (width > 0 && indent + width + 3 + needs > columns) {
      lines += blanks + line + "\n";
      line.clear();
      width = 0;
    }
    line += (width > 0 ? "   " : "") + printed;
    width += (width > 0 ? 3 : 0) + needs;
  }
  return lines + blanks + line + "\n";
}

}  // namespace stretto
