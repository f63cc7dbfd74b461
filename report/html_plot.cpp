#include "report/html_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/html_text.hpp"

namespace stretto {
namespace {

// Lengths in the SVG's own units. Margins hold the larger letters that style.css gives a phone.
constexpr double kPlotWidth = 760, kPlotHeight = 430, kPlotLeft = 96, kPlotRight = 18, kPlotTop = 26, kPlotBottom = 62;
constexpr double kMark = 4.5;

// One axis: its range, which holds all points and guides, and its ticks.
class PlotAxis {
 public:
  PlotAxis(const std::vector<double>& values, bool is_logarithmic, bool from_0, double begin, double end)
      : is_logarithmic_(is_logarithmic), begin_(begin), end_(end) {
    low_ = *std::min_element(values.begin(), values.end());
    high_ = *std::max_element(values.begin(), values.end());
    if (is_logarithmic) {
      const std::set<double> own(values.begin(), values.end());
      ticks_.assign(own.begin(), own.end());
      if (low_ == high_) low_ /= 2, high_ *= 2;
      return;
    }
    if (from_0) low_ = std::min(low_, 0.0);
    if (low_ == high_) high_ = low_ + std::max(1.0, std::abs(low_) / 10);
    const double step = step_of((high_ - low_) / 5);
    low_ = step * std::floor(low_ / step + 1e-9);
    high_ = step * std::ceil(high_ / step - 1e-9);
    for (int i = 0; low_ + i * step <= high_ + step / 2; ++i) ticks_.push_back(low_ + i * step);
  }
  const std::vector<double>& ticks() const { return ticks_; }
  double at(double value) const {
    const double share =
        is_logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return begin_ + share * (end_ - begin_);
  }

 private:
  // Returns 1, 2 or 5 times a power of ten.
  static double step_of(double raw) {
    const double power = std::pow(10, std::floor(std::log10(raw)));
    for (const double factor : {1.0, 2.0, 5.0})
      if (raw <= factor * power) return factor * power;
    return 10 * power;
  }
  bool is_logarithmic_;
  double begin_, end_, low_ = 0, high_ = 0;
  std::vector<double> ticks_;
};

bool can_draw(const Plot& plot, const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && (!plot.x_is_logarithmic || point.x > 0);
}

std::vector<double> values_along(const Plot& plot, double PlotPoint::*of, const std::vector<PlotGuide>& guides) {
  std::vector<double> values;
  for (const PlotSeries& series : plot.series)
    for (const PlotPoint& point : series.points)
      if (can_draw(plot, point)) values.push_back(point.*of);
  if (!values.empty())
    for (const PlotGuide& guide : guides) values.insert(values.end(), {guide.from, guide.to});
  return values;
}

// Returns one of kPlotSeries shapes around a place, with attributes and content of its element.
std::string shape(std::size_t kind, double x, double y, const std::string& attributes, const std::string& content) {
  const double r = kMark;
  const auto path = [&](const std::string& d) {
    return fmt::format("<path class=\"group{}\" d=\"{}\"{}>{}</path>\n", kind, d, attributes, content);
  };
  const double d = 1.3 * r, t = r / 2.4;
  switch (kind) {
    case 1:
      return path(fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}Z", x - r, y - r, 2 * r, 2 * r, -2 * r));
    case 2:
      return path(fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}h{:.1f}Z", x, y - d, d, 2.1 * r, -2 * d));
    case 3:
      return path(
          fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}l{:.1f} {:.1f}l{:.1f} {:.1f}Z", x, y - d, d, d, -d, d, -d, -d));
    case 4:
      return path(fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}h{:.1f}Z", x, y + d, d, -2.1 * r, -2 * d));
    case 5:  // a cross
      return path(
          fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}v{:.1f}h{:.1f}v{:.1f}h{:.1f}v{:.1f}h{:.1f}v{:.1f}h{:.1f}Z",
                      x - t, y - d, 2 * t, d - t, d - t, 2 * t, t - d, d - t, -2 * t, t - d, t - d, -2 * t, d - t));
    case 6:  // a bar that lies
      return path(fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}Z", x - d, y - t, 2 * d, 2 * t, -2 * d));
    case 7:  // a bar that stands
      return path(fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}Z", x - t, y - d, 2 * t, 2 * d, -2 * t));
    default:
      return fmt::format("<circle class=\"group{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"{}>{}</circle>\n", kind, x,
                         y, r, attributes, content);
  }
}

std::string plot_legend(const Plot& plot) {
  std::string items;
  for (std::size_t i = 0; i < plot.series.size(); ++i)
    items += fmt::format("<li><svg class=\"key\" viewBox=\"0 0 14 14\" aria-hidden=\"true\">{}</svg>{}</li>",
                         shape(i, 7, 7, "", ""), html_escaped(plot.series[i].name));
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

// Draws one plot whose axes are known.
class PlotDrawing {
 public:
  PlotDrawing(const Plot& plot, const PlotAxis& x, const PlotAxis& y) : plot_(plot), x_(x), y_(y) {
    for (const PlotGuide& guide : plot.x_guides) x_guide(guide);
    for (const PlotGuide& guide : plot.y_guides) y_guide(guide);
    grid();
    for (std::size_t i = 0; i < plot.series.size(); ++i) line(i);
    for (std::size_t i = 0; i < plot.series.size(); ++i) marks(i);
    svg_ += names_;
  }
  std::string text() const {
    const std::string id = html_escaped(plot_.id);
    return fmt::format(
        "<svg class=\"plot\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-labelledby=\"{}-name {}-about\">\n"
        "<title id=\"{}-name\">{}</title>\n<desc id=\"{}-about\">{}</desc>\n{}</svg>\n",
        kPlotWidth, kPlotHeight, id, id, id, html_escaped(plot_.title), id, html_escaped(plot_.description), svg_);
  }

 private:
  static constexpr double kRightEnd = kPlotWidth - kPlotRight, kLowerEnd = kPlotHeight - kPlotBottom;

  void x_guide(const PlotGuide& guide) {
    const double from = x_.at(guide.from), to = x_.at(guide.to);
    if (guide.from == guide.to)
      svg_ += fmt::format("<path class=\"equal\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", from, kPlotTop, kLowerEnd);
    else
      svg_ += fmt::format("<path class=\"band\" d=\"M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}Z\"/>\n", from, kPlotTop, to,
                          kLowerEnd, from);
    const bool is_left = (from + to) / 2 > (kPlotLeft + kRightEnd) / 2;  // names stay inside
    names_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", is_left ? "guide end" : "guide",
                          is_left ? from - 5 : to + 5, kPlotTop - 8, html_escaped(guide.name));
  }
  void y_guide(const PlotGuide& guide) {
    const double from = y_.at(guide.from), to = y_.at(guide.to);
    if (guide.from == guide.to)
      svg_ += fmt::format("<path class=\"equal\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kPlotLeft, from, kRightEnd);
    else
      svg_ += fmt::format("<path class=\"band\" d=\"M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}Z\"/>\n", kPlotLeft, from,
                          kRightEnd, to, kPlotLeft);
    names_ += fmt::format("<text class=\"guide\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kPlotLeft + 6,
                          std::min(from, to) - 4, html_escaped(guide.name));
  }
  void grid() {
    for (const double tick : x_.ticks()) {
      const double x = x_.at(tick);
      svg_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", x, kPlotTop, kLowerEnd);
      svg_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", x, kLowerEnd + 22, tick);
    }
    for (const double tick : y_.ticks()) {
      const double y = y_.at(tick);
      svg_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kPlotLeft, y, kRightEnd);
      svg_ += fmt::format("<text class=\"side\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", kPlotLeft - 8, y + 4, tick);
    }
    svg_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", (kPlotLeft + kRightEnd) / 2,
                        kPlotHeight - 10, html_escaped(plot_.x_name));
    svg_ += fmt::format("<text class=\"tick\" transform=\"translate(20 {:.1f}) rotate(-90)\">{}</text>\n",
                        (kPlotTop + kLowerEnd) / 2, html_escaped(plot_.y_name));
  }
  void line(std::size_t kind) {
    if (!plot_.series[kind].is_joined) return;
    std::string d;
    for (const PlotPoint& point : plot_.series[kind].points)
      if (can_draw(plot_, point))
        d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x_.at(point.x), y_.at(point.y));
    svg_ += fmt::format("<path class=\"join line{}\" d=\"{}\"/>\n", kind, d);
  }
  void marks(std::size_t kind) {
    for (const PlotPoint& point : plot_.series[kind].points)
      if (can_draw(plot_, point))
        svg_ +=
            shape(kind, x_.at(point.x), y_.at(point.y), fmt::format(" data-x=\"{}\" data-y=\"{}\"", point.x, point.y),
                  "<title>" + html_escaped(point.name) + "</title>");
  }

  const Plot& plot_;
  const PlotAxis &x_, &y_;
  std::string svg_, names_;  // names lie above all lines
};

}  // namespace

std::string plot_section(const Plot& plot) {
  const std::string html = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n", html_escaped(plot.id),
                                       html_escaped(plot.title), html_escaped(plot.caption));
  const std::vector<double> xs = values_along(plot, &PlotPoint::x, plot.x_guides);
  const std::vector<double> ys = values_along(plot, &PlotPoint::y, plot.y_guides);
  if (xs.empty()) return html + "<p class=\"nothing\">Nothing to show: there are no points.</p>\n</section>\n";
  const PlotAxis x(xs, plot.x_is_logarithmic, false, kPlotLeft, kPlotWidth - kPlotRight);
  const PlotAxis y(ys, false, plot.y_from_0, kPlotHeight - kPlotBottom, kPlotTop);
  return html + plot_legend(plot) + "<div class=\"figure\">" + PlotDrawing(plot, x, y).text() + "</div>\n</section>\n";
}

}  // namespace stretto
