#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "report/comparison.hpp"
#include "report/excerpt.hpp"
#include "report/html_plot.hpp"
#include "report/memory.hpp"
#include "report/table.hpp"

namespace stretto {

// One mode at one number of ranks. A step that was only predicted has no row.measured_ms and an empty `measured`; a
// step that only charts have, and no timeline, also has an empty `predicted`.
struct HtmlStep {
  ComparisonRow row;
  std::string layout;                      // "tp 4, pp 4, …" (report/layout_text.hpp)
  std::vector<std::string> communicators;  // names of communicators, in the order of BreakdownMs::exposed_by
  TimelineExcerpt predicted, measured;
  // Stretto's plan of a rank where the step was executed; all memory of a device where it was predicted.
  DeviceMemory memory;

  bool is_measured() const { return !row.measured_ms.empty(); }
  bool has_timeline() const { return !predicted.tracks.empty(); }
  std::string ranks_text() const { return std::to_string(row.ranks) + (row.ranks == 1 ? " rank" : " ranks"); }
  // Returns the heading of the bars of one layout.
  std::string group_text() const { return ranks_text() + (layout.empty() ? "" : ": " + layout); }
};

// A table with a heading and a line of text below the heading.
struct HtmlTable {
  std::string id, title, caption;
  Table table;
  bool is_open = false;  // on a page with figures: not among those that open on a click
};

// A figure that the page shows large: "Step", "14.4 s", "13.4 – 15.7 s (80 %)".
struct HtmlFigure {
  std::string what, value, about;
};

// The contents of the page of `--html`: plain data, owned. Strings are unescaped text; rendering escapes them.
struct HtmlReport {
  std::string title;
  // With figures the page begins with them, charts come first, and the summary and tables open on a click.
  std::vector<HtmlFigure> figures;
  std::vector<std::string> about;    // lines under the title: what was predicted or run, and on which machine
  Table summary{{}};                 // the table that the command prints
  std::vector<std::string> remarks;  // lines under the table
  std::vector<Plot> plots;           // below the summary
  std::vector<HtmlTable> tables;     // further tables, below the plots
  std::vector<HtmlStep> steps;       // steps of equal numbers of ranks are consecutive
  std::int64_t device_bytes = 0;     // memory of one device; 0: not known
  std::string studio;                // the studio's address of the same scenario, without "#"; "": it has none
};

// Returns one self-contained HTML file: tables and bars as HTML and SVG, timelines drawn by a script in the file. Equal
// reports give equal bytes.
std::string render_html(const HtmlReport& report);

}  // namespace stretto
