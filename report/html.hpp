#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "report/comparison.hpp"
#include "report/excerpt.hpp"
#include "report/memory.hpp"
#include "report/table.hpp"

namespace stretto {

// One mode at one number of ranks. A step that was only predicted has no row.measured_ms and an empty `measured`; one
// that only charts have, not timelines, has an empty `predicted`, too.
struct HtmlStep {
  ComparisonRow row;
  std::string layout;                      // "tp 4, pp 4, …" (report/layout_text.hpp)
  std::vector<std::string> communicators;  // names, in the order of BreakdownMs::exposed_by
  TimelineExcerpt predicted, measured;
  std::vector<MemoryUse> memory;  // one entry a role

  bool is_measured() const { return !row.measured_ms.empty(); }
  bool has_timeline() const { return !predicted.tracks.empty(); }
  std::string ranks_text() const { return std::to_string(row.ranks) + (row.ranks == 1 ? " rank" : " ranks"); }
  // Heads the bars of one layout.
  std::string group_text() const { return ranks_text() + (layout.empty() ? "" : ": " + layout); }
};

// A table with a heading of its own and a line below that.
struct HtmlTable {
  std::string id, title, caption;
  Table table;
};

// The contents of the page of `--html`: plain data, owned. Strings are text as a person wrote it; rendering escapes
// them.
struct HtmlReport {
  std::string title;
  std::vector<std::string> about;    // lines under the title: what was predicted or run, and on what
  Table summary{{}};                 // the table that the command prints
  std::vector<std::string> remarks;  // lines under it
  std::vector<HtmlTable> tables;     // further ones, below the summary
  std::vector<HtmlStep> steps;       // steps of equal numbers of ranks stand together
  std::int64_t device_bytes = 0;     // memory of one device; 0: not known
  std::int64_t reserved_bytes = 0;   // of it: context, libraries, fragmentation
};

// One HTML file that needs nothing else and loads nothing: tables and bars as HTML and SVG, timelines drawn by a script
// in it. Equal reports give equal bytes.
std::string render_html(const HtmlReport& report);

}  // namespace stretto
