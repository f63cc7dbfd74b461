#pragma once
#include <string>
#include <vector>

#include "report/html_bars.hpp"

namespace stretto {

struct ScatterPoint {
  std::size_t series = 0;
  double x = 0, y = 0;       // above 0: what is not is left out
  double low = 0, high = 0;  // of an interval of y; equal: none is drawn
  std::string name;          // shown when a pointer is on it
};

// Points on two logarithmic axes of the same unit, around the line where both are equal.
struct ScatterChart {
  std::string id;  // of the HTML element
  std::string title, caption;
  std::string x_name, y_name;     // with the unit
  double band = 0;                // a share: the band between y = x / (1 + band) and y = x · (1 + band) is shaded
  std::vector<BarSeries> series;  // colours: kScatterColours of them, "group0", "group1", …
  std::vector<ScatterPoint> points;
};
constexpr std::size_t kScatterColours = 8;

// A <section> with a heading, a legend and the drawing as SVG.
std::string scatter_section(const ScatterChart& chart);

}  // namespace stretto
