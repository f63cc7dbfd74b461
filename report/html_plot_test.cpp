#include "report/html_plot.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/occurrences.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

Plot plot() {
  Plot plot;
  plot.id = "p";
  plot.title = "Step <against> memory";
  plot.description = "two & two";
  plot.x_name = "memory, GiB";
  plot.y_name = "step, s";
  plot.x_guides = {{80, 80, "a device"}};
  plot.y_guides = {{2, 2.05, "ties"}};
  plot.series = {{"simulated", false, {{60, 4, "one"}, {30, 3, "</title><script>"}}},
                 {"front", true, {{20, 2, "a"}, {40, 2.5, "b"}}}};
  return plot;
}

}  // namespace

TEST_CASE("marks of a plot stand where their numbers say, in shapes of their series", "[html]") {
  const std::string html = plot_section(plot());
  CHECK(testing::occurrences(html, "data-x=") == 4);
  // x from 20 to 80 on 96 … 742, y from 2 to 4 on 368 … 26.
  CHECK_THAT(html, Contains("cx=\"526.7\" cy=\"26.0\" r=\"4.5\" data-x=\"60\" data-y=\"4\""));
  CHECK_THAT(html, Contains("d=\"M91.5 363.5h9.0v9.0h-9.0Z\" data-x=\"20\" data-y=\"2\""));
  CHECK(testing::occurrences(html, "class=\"join line1\"") == 1);
  CHECK(testing::occurrences(html, "class=\"join line0\"") == 0);
  CHECK_THAT(html, Contains("class=\"equal\" d=\"M742.0 26.0V368.0\"") && Contains("class=\"band\""));
  for (const char* text : {">memory, GiB<", ">step, s<", ">a device<", ">ties<", ">20<", ">80<", ">2<", ">4<"})
    CHECK_THAT(html, Contains(text));
}

TEST_CASE("a plot has a name and a description; names are text", "[html]") {
  const std::string html = plot_section(plot());
  CHECK_THAT(html, Contains("role=\"img\" aria-labelledby=\"p-name p-about\"") &&
                       Contains("<desc id=\"p-about\">two &amp; two</desc>") &&
                       Contains("Step &lt;against&gt; memory") && !Contains("<script"));
}

TEST_CASE("a logarithmic axis has the points' own values; what cannot be drawn is left out", "[html]") {
  Plot odd = plot();
  odd.x_guides.clear();
  odd.x_is_logarithmic = odd.y_from_0 = true;
  odd.series[0].points[0].y = std::numeric_limits<double>::quiet_NaN();
  odd.series[0].points[1].x = 0;
  const std::string html = plot_section(odd);
  CHECK(testing::occurrences(html, "data-x=") == 2);
  CHECK_THAT(html,
             Contains("x=\"96.0\" y=\"390.0\">20<") && Contains("x=\"742.0\" y=\"390.0\">40<") && Contains(">0<"));
  odd.series.clear();
  CHECK_THAT(plot_section(odd), Contains("Nothing to show") && !Contains("<svg"));
}
