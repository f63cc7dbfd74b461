#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report/html_text.hpp"

namespace stretto {

// One colour of the bars and its meaning. `css` is a class of report/html/style.css: "compute", "exposed0",
// "predicted", …
struct BarSeries {
  std::string name, css;
};

// The spread of repeated measurements of one bar.
struct BarSpread {
  double low = 0, quartile_1 = 0, quartile_3 = 0, high = 0;
};

struct BarSegment {
  std::size_t series = 0;
  double value = 0;  // ≥ 0; a value that is not a finite positive number takes no room
};

struct Bar {
  std::string name;                       // "predicted"
  std::vector<BarSegment> segments = {};  // stacked from left to right
  std::optional<BarSpread> spread = {};
  double total() const;
};

// Bars of one mode, for example. Rows of equal `group` follow each other under one heading.
struct BarRow {
  std::string group, label;
  std::vector<Bar> bars;
};

struct BarChart {  // a row may lack a group and a label
  std::string id;  // id of the HTML element
  std::string title, caption;
  std::string group_header = "ranks", row_header = "mode", bar_header = "side";  // headers of the table
  // values are bytes; otherwise milliseconds
  bool bytes = false;
  bool stacked = false;            // segments are parts of their bar: the table has a column for each series
  bool is_caption_closed = false;  // it stands with the numbers, which open on a click
  double width = 1040;             // of the drawing, in CSS pixels
  std::vector<BarSeries> series;
  std::vector<BarRow> rows;

  std::size_t bars() const;  // number of bars of all rows
};

// Returns the names of the series, each with its colour.
std::string html_legend(const std::vector<BarSeries>& series);

// Returns a <section> with a heading, a legend, horizontal bars as SVG, and the numbers as a table. A single bar is not
// drawn as a chart: its parts are listed, each with its colour, value and share.
std::string bar_section(const BarChart& chart);

}  // namespace stretto
