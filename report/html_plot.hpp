#pragma once
#include <string>
#include <vector>

namespace stretto {

// Points and curves on two axes, each named with its unit.

struct PlotPoint {
  double x = 0, y = 0;  // a point that is not finite, or at or below 0 on a logarithmic axis, is left out
  std::string name;     // shown when the pointer is on the point
};

// Points of one kind. The place in Plot::series decides colour and shape of its marks, so that neither is needed alone.
struct PlotSeries {
  std::string name;
  bool is_joined = false;  // a line through its points, in their order
  std::vector<PlotPoint> points;
};
constexpr std::size_t kPlotSeries = 8;  // kinds of marks

// A line across the whole plot at one value, or an area between two, with its name next to it.
struct PlotGuide {
  double from = 0, to = 0;  // equal: a line
  std::string name;
};

struct Plot {
  std::string id;  // id of the HTML element
  std::string title, caption;
  std::string description;  // for people who do not see the drawing
  std::string x_name, y_name;
  bool x_is_logarithmic = false;  // then its ticks are the points' own values
  bool y_from_0 = false;
  std::vector<PlotGuide> x_guides, y_guides;  // at values of x and of y; axes reach them
  std::vector<PlotSeries> series;             // at most kPlotSeries
};

// Returns a <section> with a heading, a legend with shapes and colours, and the drawing as SVG, which fits a phone.
// Each mark has its numbers as data-x and data-y.
std::string plot_section(const Plot& plot);

}  // namespace stretto
