#include "report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/statistics.hpp"
#include "report/colours.hpp"
#include "report/html_assets.hpp"
#include "report/html_bars.hpp"
#include "report/html_page.hpp"
#include "report/html_text.hpp"
#include "report/timeline_data.hpp"
#include "report/units.hpp"

namespace stretto {
namespace {

bool has_measured(const HtmlReport& report) {
  return std::any_of(report.steps.begin(), report.steps.end(), [](const HtmlStep& step) { return step.is_measured(); });
}

// Adds one row for each step, with the bars that `bars` returns.
template <typename Bars>
void add_rows(BarChart& chart, const HtmlReport& report, const Bars& bars) {
  for (const HtmlStep& step : report.steps) chart.rows.push_back({step.group_text(), step.row.mode, bars(step)});
}

BarChart step_times(const HtmlReport& report) {
  BarChart chart;
  chart.id = "steps";
  chart.title = "Time of a step";
  chart.series = {{"predicted", "predicted"}};
  chart.caption = "From the end of one step to the end of the next.";
  if (has_measured(report)) {
    chart.series.push_back({"measured", "measured"});
    chart.caption +=
        " Measured: the median of the repeats; the thin line is their range, the thick one reaches from the first to "
        "the third quartile.";
  }
  add_rows(chart, report, [](const HtmlStep& step) {
    std::vector<Bar> bars{{"predicted", {{0, step.row.predicted_ms}}}};
    const std::vector<double>& ms = step.row.measured_ms;
    if (!ms.empty())
      bars.push_back(
          {"measured", {{1, median(ms)}}, BarSpread{minimum(ms), percentile(ms, 25), percentile(ms, 75), maximum(ms)}});
    return bars;
  });
  return chart;
}

// Returns the names of all communicators, in the order in which they first appear.
std::vector<std::string> communicators_of(const HtmlReport& report) {
  std::vector<std::string> names;
  for (const HtmlStep& step : report.steps)
    for (const std::string& name : step.communicators)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

// Appends a series for each communicator and returns a breakdown's segments in these series.
class ExposedSeries {
 public:
  ExposedSeries(BarChart& chart, const HtmlReport& report)
      : names_(communicators_of(report)), first_(chart.series.size()) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      chart.series.push_back({"exposed " + names_[i], colour_of_communicator(names_[i])});
  }
  void append(std::vector<BarSegment>& segments, const HtmlStep& step, const BreakdownMs& breakdown) const {
    for (std::size_t c = 0; c < std::min(step.communicators.size(), breakdown.exposed_by.size()); ++c) {
      const auto name = std::find(names_.begin(), names_.end(), step.communicators[c]);
      segments.push_back({first_ + static_cast<std::size_t>(name - names_.begin()), breakdown.exposed_by[c]});
    }
  }

 private:
  std::vector<std::string> names_;
  std::size_t first_;
};

// Returns `segments_of` a breakdown, for both sides of a step.
template <typename SegmentsOf>
std::vector<Bar> both_sides(const HtmlStep& step, const SegmentsOf& segments_of) {
  std::vector<Bar> bars{{"predicted", segments_of(step, step.row.predicted)}};
  if (step.is_measured()) bars.push_back({"measured", segments_of(step, step.row.measured)});
  return bars;
}

BarChart breakdowns(const HtmlReport& report) {
  BarChart chart;
  chart.id = "breakdown";
  chart.title = "Where the time of the compute lanes goes";
  chart.caption =
      "Mean over ranks, and over all compute lanes of a rank together. Exposed: none computes, and one waits for a "
      "transfer itself; waiting for a peer's compute, for the host or for nothing is bubble.";
  if (has_measured(report))
    chart.caption += " Measured: the median of each part over the repeats; their sum need not be the median step.";
  chart.stacked = true;
  chart.series = {{"compute", "compute"}, {"waiting for a core", "core-wait"}};
  const ExposedSeries exposed(chart, report);
  const std::size_t queue = chart.series.size();
  const bool has_queues = std::any_of(report.steps.begin(), report.steps.end(), [](const HtmlStep& step) {
    return step.row.predicted.queue_wait > 0 || step.row.measured.queue_wait > 0;
  });
  if (has_queues) chart.series.push_back({"waiting for a hardware queue", "queue-wait"});
  const std::size_t host = chart.series.size();
  const bool has_host = std::any_of(report.steps.begin(), report.steps.end(), [](const HtmlStep& step) {
    return step.row.predicted.host > 0 || step.row.measured.host > 0;
  });
  if (has_host) chart.series.push_back({"waiting for the host", "host-wait"});
  const std::size_t bubble = chart.series.size();
  chart.series.push_back({has_host ? "rest of the bubble" : "bubble", "bubble"});
  add_rows(chart, report, [&](const HtmlStep& step) {
    return both_sides(step, [&](const HtmlStep& of, const BreakdownMs& b) {
      std::vector<BarSegment> segments{{0, b.compute}, {1, b.core_wait}};
      exposed.append(segments, of, b);
      if (has_queues) segments.push_back({queue, b.queue_wait});
      if (has_host) segments.push_back({host, b.host});
      segments.push_back({bubble, b.bubble - b.host});
      return segments;
    });
  });
  return chart;
}

BarChart exposures(const HtmlReport& report) {
  BarChart chart;
  chart.id = "exposed";
  chart.title = "Exposed communication";
  chart.caption = "The part of the step that overlap is there to remove, by communicator; mean over ranks.";
  chart.stacked = true;
  const ExposedSeries exposed(chart, report);
  add_rows(chart, report, [&](const HtmlStep& step) {
    return both_sides(step, [&](const HtmlStep& of, const BreakdownMs& b) {
      std::vector<BarSegment> segments;
      exposed.append(segments, of, b);
      return segments;
    });
  });
  return chart;
}

BarChart memory(const HtmlReport& report) {
  BarChart chart;
  chart.id = "memory";
  const bool is_plan =
      std::any_of(report.steps.begin(), report.steps.end(), [](const HtmlStep& step) { return step.is_measured(); });
  chart.title = is_plan ? "Memory of a rank" : "Memory of a device";
  chart.bar_header = "role";
  chart.caption = is_plan
                      ? "The peak, as planned; execution allocates exactly that. Bytes that gradients, activations and "
                        "workspaces share count for the first of them."
                      : "What is in use at the peak, on a device of each stage. The parts add up to it.";
  if (report.device_bytes > 0)
    chart.caption += " A device of this platform has " + size_text(double(report.device_bytes)) + ".";
  chart.bytes = chart.stacked = true;
  chart.series = {{"parameters", "parameters"}, {"optimizer state", "optimizer-state"},
                  {"gradients", "gradients"},   {"activations", "activations"},
                  {"workspace", "workspace"},   {"inputs and scalars", "inputs"}};
  const auto any = [&](const auto& has) {
    return std::any_of(report.steps.begin(), report.steps.end(), [&](const HtmlStep& step) {
      return std::any_of(step.memory.roles.begin(), step.memory.roles.end(),
                         [&](const MemoryUse& use) { return has(step.memory, use); });
    });
  };
  // A series that no bar has is left out; it would be an entry of the legend without a colour to look for.
  const auto series = [&](const char* name, const char* colour, bool is_there) -> std::optional<std::size_t> {
    if (!is_there) return std::nullopt;
    chart.series.push_back({name, colour});
    return chart.series.size() - 1;
  };
  const auto further = series("other tensors", "other-tensors",
                              any([](const DeviceMemory&, const MemoryUse& use) { return !use.further.empty(); }));
  const auto held = series("fragmentation", "fragmentation",
                           any([](const DeviceMemory&, const MemoryUse& use) { return use.held > 0; }));
  const auto outside = series("outside of tensors: context, libraries, NCCL", "outside-tensors",
                              any([](const DeviceMemory& of, const MemoryUse&) { return !of.outside_plan.empty(); }));
  for (const HtmlStep& step : report.steps) {
    if (step.memory.roles.empty()) continue;
    BarRow row{step.group_text(), step.row.mode, {}};
    const double ranks = double(step.memory.ranks_per_device);
    for (const MemoryUse& use : step.memory.roles) {
      row.bars.push_back({use.role,
                          {{0, ranks * double(use.parameters)},
                           {1, ranks * double(use.optimizer_state)},
                           {2, ranks * double(use.gradients)},
                           {3, ranks * double(use.activations)},
                           {4, ranks * double(use.workspace)},
                           {5, ranks * double(use.inputs_and_scalars)}}});
      std::vector<BarSegment>& segments = row.bars.back().segments;
      if (further) segments.push_back({*further, ranks * double(sum_of(use.further))});
      if (held) segments.push_back({*held, ranks * double(use.held)});
      if (outside) segments.push_back({*outside, double(step.memory.reserved_bytes())});
    }
    chart.rows.push_back(std::move(row));
  }
  return chart;
}

std::string timelines(const HtmlReport& report) {
  if (std::none_of(report.steps.begin(), report.steps.end(), [](const HtmlStep& step) { return step.has_timeline(); }))
    return {};
  return std::string("<section id=\"timelines\">\n<h2>Timelines</h2>\n") +
         "<details><summary>how to read them</summary><p>One step. Above, a bar for each micro-batch, model chunk and "
         "pass of every stage, on its compute lanes: "
         "solid is what its operations take, pale is waiting within it, for communication or for the host; gaps are "
         "the "
         "pipeline's bubble and other waits. Below, operation by operation: gaps are waiting, a "
         "pale front of a communication is waiting for its peers, dashes are where the step begins and ends. Ranks "
         "that "
         "behave equally are predicted once, by the first of them." +
         (has_measured(report) ? " Measured is the repeat with the median step." : "") + "</p></details>\n" +
         "<noscript><p class=\"nothing\">The timelines are drawn by a script, which this browser does not "
         "run.</p></noscript>\n<div id=\"timeline\"></div>\n</section>\n"
         "<script type=\"application/json\" id=\"data\">" +
         script_json(timeline_data(report)) + "</script>\n<script>\n" + kHtmlScript + "</script>\n";
}

}  // namespace

namespace {

// Returns a section whose contents open on a click.
std::string closed_section(const std::string& id, const std::string& title, const std::string& contents) {
  return "<section id=\"" + html_escaped(id) + "\" class=\"closed\">\n<details><summary>" + html_escaped(title) +
         "</summary>\n" + contents + "</details></section>\n";
}

std::string section(const HtmlTable& table) {
  return "<section id=\"" + html_escaped(table.id) + "\">\n<h2>" + html_escaped(table.title) + "</h2>\n<p>" +
         html_escaped(table.caption) + "</p>\n" + html_table(table.table) + "</section>\n";
}

std::string summary_of(const HtmlReport& report) {
  std::string body = report.summary.rows() > 0 ? html_table(report.summary) : "";
  for (const std::string& remark : report.remarks) body += html_paragraph(remark, "remark");
  return body;
}

constexpr double kHalfWidth = 560;  // of a drawing next to a table, in CSS pixels

// Returns how the scenario opens in the studio, a file that `stretto page` writes.
std::string studio_link(const std::string& address) {
  return "<p>The studio is a page on which every setting can be changed by hand. <code>stretto page "
         "stretto.html</code> "
         "writes it: next to this report, it opens <a href=\"stretto.html#" +
         html_escaped(address) + "\">with the same scenario</a>.</p>\n";
}

// Returns a page that begins with its figures: charts, what is open, then all else, which opens on a click.
std::string render_with_figures(const HtmlReport& report) {
  std::string body = "<section id=\"figures\">\n<dl class=\"figures\">\n";
  for (const HtmlFigure& figure : report.figures)
    body += "<div><dt>" + html_escaped(figure.what) + "</dt><dd>" + html_escaped(figure.value) +
            "</dd><dd class=\"about\">" + html_escaped(figure.about) + "</dd></div>\n";
  body += "</dl>\n";
  for (const std::string& line : report.about) body += html_paragraph(line, "about");
  BarChart parts = breakdowns(report);
  parts.is_caption_closed = true;
  body += "</section>\n" + bar_section(parts);
  for (const Plot& plot : report.plots) body += plot_section(plot);
  body += "<div class=\"pair\">\n";
  for (const HtmlTable& table : report.tables)
    if (table.is_open) body += section(table);
  BarChart stages = memory(report);
  stages.width = kHalfWidth;
  stages.is_caption_closed = true;
  for (BarRow& row : stages.rows) row.group = row.label = "";  // the page has one step
  body += bar_section(stages) + "</div>\n" + timelines(report) + "<h2>More</h2>\n<div class=\"more\">\n" +
          closed_section("summary", "Every figure", summary_of(report));
  for (const HtmlTable& table : report.tables)
    if (!table.is_open)
      body += closed_section(table.id, table.title,
                             "<p>" + html_escaped(table.caption) + "</p>\n" + html_table(table.table));
  if (!report.studio.empty()) body += closed_section("studio", "Open in the studio", studio_link(report.studio));
  body += "</div>\n";
  return html_page(report.title, {}, body);
}

}  // namespace

std::string render_html(const HtmlReport& report) {
  if (!report.figures.empty()) return render_with_figures(report);
  std::string body = "<section id=\"summary\">\n<h2>Summary</h2>\n" + summary_of(report) + "</section>\n";
  for (const Plot& plot : report.plots) body += plot_section(plot);
  for (const HtmlTable& table : report.tables) body += section(table);
  if (report.steps.empty()) {
    body += html_paragraph("No step was finished.", "nothing");
  } else {
    // For a single bar the summary and the breakdown already say everything.
    if (const BarChart steps = step_times(report); steps.bars() > 1) body += bar_section(steps);
    body += bar_section(breakdowns(report));
    if (const BarChart exposed = exposures(report); exposed.bars() > 1) body += bar_section(exposed);
    body += timelines(report) + bar_section(memory(report));
  }
  return html_page(report.title, report.about, body);
}

}  // namespace stretto
