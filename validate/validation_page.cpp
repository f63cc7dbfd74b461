#include "validate/validation_page.hpp"

#include <fmt/format.h>

#include "report/html_page.hpp"
#include "report/html_scatter.hpp"
#include "validate/validation_tables.hpp"

namespace stretto::validate {
namespace {

ScatterChart scatter_of(const Validation& validation) {
  ScatterChart chart;
  chart.id = "steps";
  chart.title = "Predicted against measured";
  chart.caption = "Time of a step, with constants as they come with Stretto. The band is 10 % either way.";
  if (validation.options.intervals) chart.caption += " The thin lines are the intervals of 80 %.";
  chart.x_name = "measured, s";
  chart.y_name = "predicted, s";
  chart.band = 0.10;
  for (std::size_t g = 0; g < validation.groups.size(); ++g) {
    chart.series.push_back({validation.groups[g].name, fmt::format("group{}", g % kScatterColours)});
    for (const std::size_t s : validation.groups[g].steps) {
      const ValidatedStep& step = validation.steps[s];
      const std::string name = fmt::format("{}, {}: measured {:.4g} s, predicted {:.4g} s, {:+.1f} %",
                                           step.published.id, step.published.model, step.published.step_s,
                                           step.predicted(Fitted::shipped), 100 * step.error(Fitted::shipped));
      chart.points.push_back(
          {g, step.published.step_s, step.predicted(Fitted::shipped), step.low_s(), step.high_s(), name});
    }
  }
  return chart;
}

// Returns "" for an empty table.
std::string section(const char* id, const char* title, const char* caption, const Table& table) {
  if (table.rows() == 0) return "";
  return fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n{}</section>\n", id, title, caption,
                     html_table(table));
}

}  // namespace

std::string render_validation(const Validation& validation, const std::string& file) {
  std::string body = scatter_of(validation).series.empty() ? "" : scatter_section(scatter_of(validation));
  body += section("groups", "By group", "Errors are predicted / measured − 1: mean of sizes, bias, and the worst.",
                  table_of_groups(validation));
  for (const auto& lines : {skipped_lines(validation), assumed_lines(validation)})
    for (const std::string& line : lines) body += html_paragraph(line, "remark");
  body += section("memory", "Memory",
                  "Predicted against published peaks of a GPU; and steps that ran, but are predicted not to fit.",
                  table_of_memory(validation));
  body += section("pairs", "Pairs", "Steps of one model that differ in one setting, or trade two: is the ratio right?",
                  table_of_pairs(validation));
  body += section("ranking", "Ranking",
                  "Layouts of one model, batch and number of GPUs: how much slower than the best is the one picked? A "
                  "constant MFU gives all of them one time and picks as a random layout does.",
                  table_of_rankings(validation));
  body += section("intervals", "Intervals", "Rows inside the 80 % interval of their prediction.",
                  table_of_intervals(validation));
  body += section("left-out", "Models left out", "Constants fitted again to the other models of the group.",
                  table_of_left_out(validation));
  if (const Table rows = table_of_rows(validation); rows.rows() > 0)
    body += "<section id=\"rows\">\n<h2>Rows</h2>\n<details><summary>every row</summary>\n" + html_table(rows) +
            "</details>\n</section>\n";
  return html_page("Predictions against published steps", {file}, body);
}

}  // namespace stretto::validate
