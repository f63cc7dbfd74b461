#include "report/html_scatter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stretto {
namespace {

// Lengths in the SVG's own units, which are CSS pixels at full width.
constexpr double kChartWidth = 1040, kHeight = 720, kLeft = 70, kRight = 10, kTop = 10, kBottom = 46, kRadius = 3.6;

bool is_drawn(const ScatterPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && point.x > 0 && point.y > 0;
}
bool has_interval(const ScatterPoint& point) {
  return point.low > 0 && std::isfinite(point.high) && point.high > point.low;
}

// One range for both axes: whole steps of 1, 2, 5, 10, …
class Axis {
 public:
  explicit Axis(const ScatterChart& chart) {
    double low = 0, high = 0;
    const auto hold = [&](double value) {
      low = low > 0 ? std::min(low, value) : value;
      high = std::max(high, value);
    };
    for (const ScatterPoint& point : chart.points) {
      if (!is_drawn(point)) continue;
      for (const double value : {point.x, point.y}) hold(value);
      if (has_interval(point)) hold(point.low), hold(point.high);
    }
    if (low <= 0) return;
    double tick = std::pow(10, std::floor(std::log10(low)));
    for (int i = 0; ticks_.empty() || ticks_.back() < high; ++i) {
      if (next(tick, i) > low) ticks_.push_back(tick);
      tick = next(tick, i);
    }
    if (ticks_.size() == 1) ticks_.push_back(tick);
  }
  const std::vector<double>& ticks() const { return ticks_; }
  double low() const { return ticks_.front(); }
  double high() const { return ticks_.back(); }
  double x(double value) const { return kLeft + share(value) * (kChartWidth - kLeft - kRight); }
  double y(double value) const { return kHeight - kBottom - share(value) * (kHeight - kTop - kBottom); }

 private:
  static double next(double tick, int i) { return tick * (i % 3 == 1 ? 2.5 : 2); }
  double share(double value) const { return std::clamp(std::log(value / low()) / std::log(high() / low()), 0.0, 1.0); }
  std::vector<double> ticks_;
};

std::string grid(const ScatterChart& chart, const Axis& axis) {
  std::string svg;
  if (chart.band > 0) {
    const double wide = 1 + chart.band, low = axis.low(), high = axis.high();
    svg += fmt::format(
        "<path class=\"band\" d=\"M{0:.1f} {1:.1f}L{2:.1f} {1:.1f}L{3:.1f} {4:.1f}L{3:.1f} {5:.1f}"
        "L{6:.1f} {5:.1f}L{0:.1f} {7:.1f}Z\"/>\n",
        axis.x(low), axis.y(low), axis.x(low * wide), axis.x(high), axis.y(high / wide), axis.y(high),
        axis.x(high / wide), axis.y(low * wide));
  }
  for (const double tick : axis.ticks()) {
    const double x = axis.x(tick), y = axis.y(tick);
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}H{:.1f}\"/>\n", x,
                       axis.y(axis.low()), axis.y(axis.high()), axis.x(axis.low()), y, axis.x(axis.high()));
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", x, kHeight - kBottom + 17, tick);
    svg += fmt::format("<text class=\"side\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", kLeft - 7, y + 4, tick);
  }
  svg += fmt::format("<path class=\"equal\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", axis.x(axis.low()),
                     axis.y(axis.low()), axis.x(axis.high()), axis.y(axis.high()));
  svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", (kLeft + kChartWidth - kRight) / 2,
                     kHeight - 8, html_escaped(chart.x_name));
  svg += fmt::format("<text class=\"tick\" transform=\"translate(14 {:.1f}) rotate(-90)\">{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, html_escaped(chart.y_name));
  return svg;
}

std::string drawn(const ScatterChart& chart) {
  const Axis axis(chart);
  std::string intervals, points;
  for (const ScatterPoint& point : chart.points) {
    if (!is_drawn(point)) continue;
    if (has_interval(point))
      intervals += fmt::format("<path class=\"interval\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", axis.x(point.x),
                               axis.y(point.low), axis.y(point.high));
    points += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
                          chart.series[point.series].css, axis.x(point.x), axis.y(point.y), kRadius,
                          html_escaped(point.name));
  }
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}{}{}</svg>\n", kChartWidth,
                     kHeight, html_escaped(chart.title), grid(chart, axis), intervals, points);
}

}  // namespace

std::string scatter_section(const ScatterChart& chart) {
  const std::string html = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n", html_escaped(chart.id),
                                       html_escaped(chart.title), html_escaped(chart.caption));
  if (std::none_of(chart.points.begin(), chart.points.end(), is_drawn))
    return html + "<p class=\"nothing\">Nothing to show: there are no points.</p>\n</section>\n";
  return html + html_legend(chart.series) + "<div class=\"figure\">" + drawn(chart) + "</div>\n</section>\n";
}

}  // namespace stretto
