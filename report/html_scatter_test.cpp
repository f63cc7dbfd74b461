#include "report/html_scatter.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/occurrences.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

ScatterChart chart() {
  ScatterChart chart;
  chart.id = "steps";
  chart.title = "Predicted <against> measured";
  chart.x_name = "measured, s";
  chart.y_name = "predicted, s";
  chart.band = 0.1;
  chart.series = {{"A100 & co", "group0"}, {"H100", "group1"}};
  chart.points = {{0, 0.3, 0.33, 0.3, 0.36, "one"}, {1, 60, 50, 0, 0, "</title><script>"}};
  return chart;
}

}  // namespace

TEST_CASE("points stand on logarithmic axes of 1, 2, 5", "[html]") {
  const std::string html = scatter_section(chart());
  CHECK(testing::occurrences(html, "<circle ") == 2);
  CHECK(testing::occurrences(html, "class=\"interval\"") == 1);
  CHECK(testing::occurrences(html, "class=\"band\"") == 1);
  for (const char* tick : {">0.2<", ">0.5<", ">1<", ">50<", ">100<"}) CHECK_THAT(html, Contains(tick));
  CHECK_THAT(html, !Contains(">0.1<") && !Contains(">200<"));
  // 0.3 of 0.2 … 100 on the x axis: 70 + ln(1.5) / ln(500) · 960.
  CHECK_THAT(html, Contains("cx=\"132.6\""));
}

TEST_CASE("names of points are text", "[html]") {
  const std::string html = scatter_section(chart());
  CHECK_THAT(html, !Contains("<script") && Contains("Predicted &lt;against&gt; measured") && Contains("A100 &amp; co"));
}

TEST_CASE("what cannot be drawn is left out", "[html]") {
  ScatterChart odd = chart();
  odd.points[0].y = std::numeric_limits<double>::quiet_NaN();
  CHECK(testing::occurrences(scatter_section(odd), "<circle ") == 1);
  odd.points[1].x = 0;
  CHECK_THAT(scatter_section(odd), Contains("Nothing to show") && !Contains("<svg"));
}
