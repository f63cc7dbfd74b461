#pragma once
#include <string>
#include <vector>

#include "report/html_bars.hpp"

namespace stretto {

struct ScatterPoint {
  std::size_t series = 0;
  double x = 0, y = 0;       // above 0: other points are left out
  double low = 0, high = 0;  // interval of y; where the two are equal, none is drawn
  std::string name;          // shown when the pointer is on the point
};

// Points on two logarithmic axes with one unit, around the line of equality.
struct ScatterChart {
  std::string id;  // id of the HTML element
  std::string title, caption;
  std::string x_name, y_name;     // including the unit
  double band = 0;                // a share: the band between y = x / (1 + band) and y = x · (1 + band) is shaded
  std::vector<BarSeries> series;  // kScatterColours colours: "group0", "group1", …
  std::vector<ScatterPoint> points;
};
constexpr std::size_t kScatterColours = 8;

// Returns a <section> with a heading, a legend and the drawing as SVG.
std::string scatter_section(const ScatterChart& chart);

}  // namespace stretto
