#include "report/html_bars.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "report/units.hpp"

namespace stretto {
namespace {

// Lengths in the SVG's own units, which are CSS pixels at full width.
constexpr double kBarHeight = 13, kBarGap = 3, kRowGap = 6, kGroupHeading = 26, kAxis = 26;
constexpr double kBarNameWidth = 66, kValueWidth = 84, kCharacter = 7.5;
constexpr double kLineHeight = 15;
constexpr std::size_t kLongestLine = 36;

double drawable(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

double largest_of(const BarChart& chart) {
  double largest = 0;
  for (const BarRow& row : chart.rows)
    for (const Bar& bar : row.bars)
      largest = std::max({largest, drawable(bar.total()), bar.spread ? drawable(bar.spread->high) : 0});
  return largest;
}

// Returns "64 ranks: tp 4, plain, ", what stands before a bar's own name.
std::string place_of(const BarRow& row) {
  std::string name;
  for (const std::string* part : {&row.group, &row.label})
    if (!part->empty()) name += *part + ", ";
  return name;
}

// Returns 1, 2 or 5 times a power of ten: at most six lines on the axis.
double tick_step(double largest) {
  const double raw = largest / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

// Returns the lines of a drawn label: the whole text, in lines no longer than kLongestLine where it has a "+" after
// which it can be cut, or is one long word.
std::vector<std::string> lines_of(const std::string& label) {
  std::vector<std::string> lines = {""};
  std::string word;
  const auto put = [&] {
    if (!lines.back().empty() && display_width(lines.back() + word) > kLongestLine) lines.emplace_back();
    lines.back() += std::exchange(word, "");
  };
  for (std::size_t i = 0; i < label.size(); ++i) {
    const bool is_start = (static_cast<unsigned char>(label[i]) & 0xC0) != 0x80;  // first byte of a character
    if (is_start && display_width(word) >= kLongestLine) put();
    word += label[i];
    if (label[i] == '+') put();
  }
  put();
  return lines;
}

// Builds the drawing, from top to bottom.
class Svg {
 public:
  explicit Svg(const BarChart& chart)
      : chart_(chart), unit_(chart.bytes ? byte_unit(largest_of(chart)) : time_unit(largest_of(chart))) {
    std::size_t longest = 0;
    for (const BarRow& row : chart.rows)
      for (const std::string& line : lines_of(row.label)) longest = std::max(longest, display_width(line));
    left_ = kCharacter * double(longest) + 12 + kBarNameWidth;
    const double largest = largest_of(chart);
    scale_ = largest > 0 ? (chart.width - kValueWidth - left_) / largest : 0;
    for (std::size_t i = 0; i < chart.rows.size(); ++i) {
      if (!chart.rows[i].group.empty() && (i == 0 || chart.rows[i].group != chart.rows[i - 1].group)) heading(i);
      row(chart.rows[i]);
    }
    if (largest > 0) axis(largest);
  }

  std::string text() const {
    return fmt::format(
        "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" style=\"max-width: {:.0f}px\" "
        "aria-label=\"{}\">\n{}{}</svg>\n",
        chart_.width, y_ + kAxis, chart_.width, html_escaped(chart_.title), grid_, body_);
  }

 private:
  void heading(std::size_t row) {
    y_ += kGroupHeading;
    body_ += fmt::format("<text class=\"group\" x=\"0\" y=\"{:.1f}\">{}</text>\n", y_ - 9,
                         html_escaped(chart_.rows[row].group));
  }

  void row(const BarRow& row) {
    const std::vector<std::string> lines = lines_of(row.label);
    const double bars = double(row.bars.size()) * (kBarHeight + kBarGap) - kBarGap;
    const double height = std::max(bars, kLineHeight * double(lines.size()));
    const double top = y_ + (height - kLineHeight * double(lines.size())) / 2;
    for (std::size_t i = 0; i < lines.size(); ++i)
      body_ += fmt::format("<text class=\"label\" x=\"0\" y=\"{:.1f}\">{}</text>\n",
                           top + kLineHeight * (double(i) + 0.75), html_escaped(lines[i]));
    const double end = y_ + height;
    y_ += (height - bars) / 2;
    for (const Bar& bar : row.bars) {
      draw(row, bar);
      y_ += kBarHeight + kBarGap;
    }
    y_ = end + kRowGap;
  }

  void draw(const BarRow& row, const Bar& bar) {
    const double middle = y_ + kBarHeight / 2;
    body_ += fmt::format("<text class=\"side\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left_ - 8, middle + 4,
                         html_escaped(bar.name));
    double x = left_;
    for (const BarSegment& segment : bar.segments) {
      const double width = drawable(segment.value) * scale_;
      if (width <= 0) continue;
      const BarSeries& series = chart_.series[segment.series];
      std::string title = place_of(row) + bar.name;
      if (chart_.stacked) title += ", " + series.name;
      body_ += fmt::format(
          "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\">"
          "<title>{}: {}</title></rect>\n",
          series.css, x, y_, width, kBarHeight, html_escaped(title),
          chart_.bytes ? size_text(segment.value) : time_text(segment.value));
      x += width;
    }
    if (bar.spread) {
      const auto at = [&](double value) { return left_ + drawable(value) * scale_; };
      const BarSpread& s = *bar.spread;
      body_ += fmt::format("<path class=\"range\" d=\"M{:.2f} {:.1f}H{:.2f}\"/>\n", at(s.low), middle, at(s.high));
      body_ += fmt::format(
          "<path class=\"quartiles\" d=\"M{0:.2f} {2:.1f}v6m0 -3H{1:.2f}m0 -3v6\"><title>quartiles {3}–{4}, range "
          "{5}–{6}</title></path>\n",
          at(s.quartile_1), at(s.quartile_3), middle - 3, unit_.number(s.quartile_1), unit_.text(s.quartile_3),
          unit_.number(s.low), unit_.text(s.high));
      x = std::max(x, at(s.high));
    }
    body_ += fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 6, middle + 4,
                         unit_.text(bar.total()));
  }

  void axis(double largest) {
    const double step = tick_step(largest / unit_.per_unit) * unit_.per_unit;
    for (int i = 0; i * step <= largest * (1 + 1e-9); ++i) {
      const double x = left_ + i * step * scale_;
      grid_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} 0V{:.1f}\"/>\n", x, y_);
      grid_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}{}</text>\n", x, y_ + 16,
                           i * step / unit_.per_unit, i == 0 ? " " + unit_.name : "");
    }
  }

  const BarChart& chart_;
  Unit unit_;
  double left_ = 0, scale_ = 0, y_ = 4;
  std::string grid_, body_;
};

std::string numbers(const BarChart& chart, const std::string& caption = {}) {
  const Unit unit = chart.bytes ? byte_unit(largest_of(chart)) : time_unit(largest_of(chart));
  bool grouped = false, labelled = false, scattered = false;
  for (const BarRow& row : chart.rows) {
    grouped = grouped || !row.group.empty();
    labelled = labelled || !row.label.empty();
    for (const Bar& bar : row.bars) scattered = scattered || bar.spread.has_value();
  }
  std::vector<std::string> headers;
  if (grouped) headers.push_back(chart.group_header);
  if (labelled) headers.push_back(chart.row_header);
  headers.push_back(chart.bar_header);
  if (chart.stacked)
    for (const BarSeries& series : chart.series) headers.push_back(series.name + ", " + unit.name);
  headers.push_back((chart.stacked ? "sum, " : "") + unit.name);
  if (scattered) headers.insert(headers.end(), {"lowest", "1st quartile", "3rd quartile", "highest"});

  Table table(headers);
  for (const BarRow& row : chart.rows)
    for (const Bar& bar : row.bars) {
      std::vector<std::string> cells;
      if (grouped) cells.push_back(row.group);
      if (labelled) cells.push_back(row.label);
      cells.push_back(bar.name);
      if (chart.stacked) {
        std::vector<double> values(chart.series.size());
        for (const BarSegment& segment : bar.segments) values[segment.series] += segment.value;
        for (const double value : values) cells.push_back(unit.number(value));
      }
      cells.push_back(unit.number(bar.total()));
      if (bar.spread)
        for (const double value : {bar.spread->low, bar.spread->quartile_1, bar.spread->quartile_3, bar.spread->high})
          cells.push_back(unit.number(value));
      table.add_row(std::move(cells));
    }
  return "<details><summary>the numbers</summary>\n" + caption + html_table(table) + "</details>\n";
}

// Returns the series that have a segment in some bar.
std::vector<BarSeries> seen_series(const BarChart& chart) {
  std::vector<bool> is_seen(chart.series.size(), false);
  for (const BarRow& row : chart.rows)
    for (const Bar& bar : row.bars)
      for (const BarSegment& segment : bar.segments)
        if (drawable(segment.value) > 0) is_seen[segment.series] = true;
  std::vector<BarSeries> seen;
  for (std::size_t i = 0; i < is_seen.size(); ++i)
    if (is_seen[i]) seen.push_back(chart.series[i]);
  return seen;
}

// Returns the only bar as a list of its parts, in the colours of the other charts.
std::string single_bar(const BarChart& chart) {
  for (const BarRow& row : chart.rows)
    for (const Bar& bar : row.bars) {
      const auto text = [&](double value) { return chart.bytes ? size_text(value) : time_text(value); };
      std::vector<BarSeries> parts;
      for (const BarSegment& segment : bar.segments)
        if (drawable(segment.value) > 0)
          parts.push_back({fmt::format("{} {} ({})", chart.series[segment.series].name, text(segment.value),
                                       percent_text(segment.value / bar.total())),
                           chart.series[segment.series].css});
      return fmt::format("<p class=\"single\">{}: {}</p>\n", html_escaped(place_of(row) + bar.name),
                         text(bar.total())) +
             html_legend(parts);
    }
  return {};
}

}  // namespace

double Bar::total() const {
  double sum = 0;
  for (const BarSegment& segment : segments) sum += segment.value;
  return sum;
}

std::string html_legend(const std::vector<BarSeries>& series) {
  std::string items;
  for (const BarSeries& one : series)
    items += fmt::format("<li><i class=\"{}\"></i>{}</li>", one.css, html_escaped(one.name));
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

std::size_t BarChart::bars() const {
  std::size_t count = 0;
  for (const BarRow& row : rows) count += row.bars.size();
  return count;
}

std::string bar_section(const BarChart& chart) {
  const std::string caption = fmt::format("<p>{}</p>\n", html_escaped(chart.caption));
  std::string html = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}", html_escaped(chart.id),
                                 html_escaped(chart.title), chart.is_caption_closed ? "" : caption);
  if (largest_of(chart) <= 0)
    return html + "<p class=\"nothing\">Nothing to show: all of it is zero.</p>\n" +
           (chart.rows.empty() ? "" : numbers(chart)) + "</section>\n";
  if (chart.bars() == 1) return html + single_bar(chart) + "</section>\n";
  return html + html_legend(seen_series(chart)) + "<div class=\"figure\">" + Svg(chart).text() + "</div>\n" +
         numbers(chart, chart.is_caption_closed ? caption : "") + "</section>\n";
}

}  // namespace stretto
