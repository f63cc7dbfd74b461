#include "report/html.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/html_bars.hpp"
#include "report/html_text.hpp"
#include "tests/occurrences.hpp"
#include "tests/test_program.hpp"

using namespace stretto;
using Catch::Matchers::Contains;
using stretto::test::HandMade;

namespace {

HtmlStep step(const std::string& mode, std::int64_t ranks, std::vector<double> measured_ms) {
  HandMade made;
  made.timeline.step_end = 100'000'000'000;
  made.compute(0, 0, 60'000'000'000);
  made.add(1, 0, 60'000'000'000, 70'000'000'000, 95'000'000'000, {{0}});
  made.schedule.programs = {{"rank", {}}};
  HtmlStep step;
  step.row.mode = mode;
  step.row.ranks = ranks;
  step.row.predicted_ms = 100;
  step.row.predicted = {60, 0, 25, 0, 15, {25, 0}};
  step.row.operations = {{"compute.0", "fill", 60, 61}};
  step.communicators = {"dp", "tp"};
  step.predicted = excerpt(made.schedule, {made.program}, made.timeline);
  if (!measured_ms.empty()) {
    step.row.measured = {61, 1, 30, 0, 18, {28, 2}};
    step.measured = step.predicted;
  }
  step.row.measured_ms = std::move(measured_ms);
  step.memory.roles = {{"stage 0", 1 << 20, 2 << 20, 0, 1 << 20, 2 << 20}, {"stage 1", 1 << 20, 2 << 20, 0, 1 << 20}};
  return step;
}

HtmlReport report() {
  HtmlReport report;
  report.title = "tiny: predicted and measured";
  report.about = {"platform host"};
  report.summary = Table({"mode", "ms"});
  report.summary.add_row({"plain", "100.0"});
  report.remarks = {"mean error 1.0 %"};
  report.steps = {step("plain", 2, {110, 90, 100, 140}), step("overlap_grad_reduce", 2, {80, 80, 80})};
  report.device_bytes = std::int64_t{8} << 30;
  return report;
}

nlohmann::json data_of(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>", from) - from));
}

// Returns the page without its style and script.
std::string content_of(const std::string& html) {
  const std::size_t body = html.find("<body>"), script = html.find("<script>");
  if (script == std::string::npos) return html.substr(body);
  return html.substr(body, script - body) + html.substr(html.find("</script>", script));
}

}  // namespace

TEST_CASE("a page has a chart and a table for steps, breakdown, exposed time and memory, and both timelines",
          "[html]") {
  const std::string html = render_html(report());
  CHECK(html.rfind("<!DOCTYPE html>", 0) == 0);
  for (const char* id : {"summary", "steps", "breakdown", "exposed", "timelines", "memory"})
    CHECK_THAT(html, Contains("<section id=\"" + std::string(id) + "\">"));
  CHECK(testing::occurrences(html, "<svg ") == 4);
  CHECK(testing::occurrences(content_of(html), "<details>") == 5);  // four tables, and how to read the timelines
  for (const char* text :
       {"<h1>tiny: predicted and measured</h1>", "overlap_grad_reduce", "platform host", "mean error 1.0 %", "stage 1",
        "8.000 GiB", "exposed tp", "105.0 ms", "quartiles 97.5–117.5 ms, range 90.0–140.0 ms"})
    CHECK_THAT(html, Contains(text));
  const nlohmann::json data = data_of(html);
  REQUIRE(data.at("steps").size() == 2);
  const nlohmann::json& plain = data.at("steps")[0];
  CHECK(plain.at("title") == "2 ranks, plain");
  REQUIRE(plain.at("sides").size() == 2);
  CHECK(plain.at("sides")[1].at("title") == "measured");
  CHECK(plain.at("sides")[0].at("step") == 100'000'000);
  CHECK(plain.at("sides")[0].at("tracks")[0].at("slices") ==
        nlohmann::json({0, 0, 0, 0, 60'000'000, 1, 1, 60'000'000, 10'000'000, 35'000'000}));
  CHECK(data.at("labels").size() == 2);  // labels of four timelines
}

TEST_CASE("a page loads nothing and is the same every time", "[html]") {
  const std::string html = render_html(report());
  CHECK(html == render_html(report()));
  for (const char* text : {"http://", "https://", "src=", "<link", "@import", "url("})
    CHECK_THAT(html, !Contains(text));
}

TEST_CASE("without measurements a page has the predicted side only", "[html]") {
  HtmlReport predicted = report();
  predicted.steps = {step("plain", 1, {})};
  predicted.steps.front().layout = "tp 1, pp 2, vp 1, cp 1, dp 1, 4 micro-batches, pipeline schedule 1f1b";
  const std::string content = content_of(render_html(predicted));
  CHECK_THAT(content, Contains("1 rank: tp 1, pp 2, vp 1, cp 1, dp 1, 4 micro-batches, pipeline schedule 1f1b"));
  // One step is drawn without a chart, but its stages' memory has one.
  CHECK(testing::occurrences(content, "<svg ") == 1);
  // A step without a prediction has charts, but no timeline.
  predicted.steps.push_back(predicted.steps.front());
  predicted.steps.back().predicted = {};
  CHECK(testing::occurrences(render_html(predicted), "<svg ") == 4);
  CHECK(data_of(render_html(predicted)).at("steps").size() == 1);
  CHECK(data_of(render_html(predicted)).at("steps")[0].at("sides").size() == 1);
  CHECK_THAT(content, !Contains("easured</text>") && !Contains("median"));
}

TEST_CASE("names are text, whatever they contain", "[html]") {
  HtmlReport nasty = report();
  const std::string name = "</script><script>alert(1)</script>\"'&\u2028<!--\x01";
  nasty.title = nasty.about[0] = nasty.remarks[0] = nasty.steps[0].row.mode = nasty.steps[0].communicators[0] = name;
  nasty.steps[0].memory.roles[0].role = nasty.steps[0].predicted.labels[0].name = name;
  nasty.steps[0].row.operations[0].name = nasty.steps[0].predicted.lanes[0] = name + "\xff";
  nasty.summary.add_row({name});
  const std::string html = render_html(nasty);
  CHECK(testing::occurrences(html, "</script>") == 2);
  CHECK(testing::occurrences(html, "<script") == 2);
  CHECK_THAT(html, !Contains("<!--") && !Contains("\x01"));
  CHECK(data_of(html).at("steps")[0].at("operations")[0][0] == name + "\uFFFD");
  CHECK(html_escaped("<a href=\"'&\">") == "&lt;a href=&quot;&#39;&amp;&quot;&gt;");
  CHECK(script_json({"</script>", "\u2028"}) == R"(["\u003c/script>","\u2028"])");
}

TEST_CASE("nothing to show is said, not drawn", "[html]") {
  const std::string empty = render_html({});
  CHECK_THAT(empty, Contains("No step was finished.") && Contains("</html>") && !Contains("<svg"));
  HtmlReport idle;
  idle.steps.emplace_back();
  const std::string html = render_html(idle);
  CHECK_THAT(html, Contains("all of it is zero") && !Contains("<svg"));
}

TEST_CASE("numbers that are none never reach a page", "[html]") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  HtmlReport broken = report();
  for (const double bad : {nan, inf, -inf}) {
    HtmlStep& step = broken.steps[0];
    step.row.predicted_ms = bad;
    step.row.measured_ms = {bad, 1, bad};
    step.row.predicted = {bad, bad, bad, bad, bad, {bad, bad}};
    step.row.operations = {{"compute.0", "gemm", bad, bad}};
    const std::string html = render_html(broken);
    for (const char* text : {"nan", "inf", "-inf"}) {
      CHECK_THAT(content_of(html), !Contains(std::string("\"") + text));
      CHECK_THAT(content_of(html), !Contains(std::string(">") + text + "<") && !Contains(std::string(text) + " ms"));
    }
    CHECK(data_of(html).at("steps")[0].at("operations")[0][2].is_null());
  }
}

TEST_CASE("bars are as long as their values, and labels are whole", "[html]") {
  BarChart chart;
  chart.id = chart.title = "steps";
  chart.stacked = true;
  chart.series = {{"a", "compute"}, {"b", "bubble"}};
  const std::string word(60, 'x'), mode = "overlap_grad_reduce+overlap_param_gather+tp_comm_overlap+overlap_p2p_comm";
  chart.rows = {{"", word, {{"one", {{0, 30}, {1, 10}}}, {"two", {{0, 20}}}}}, {"", mode, {{"one", {{0, 10}}}}}};
  const std::string html = bar_section(chart);
  const auto width_of = [&](std::size_t nth) {
    std::size_t at = 0;
    for (std::size_t i = 0; i <= nth; ++i) at = html.find("<rect", at + 1);
    return std::stod(html.substr(html.find(" width=\"", at) + 8));
  };
  CHECK(width_of(0) == Approx(3 * width_of(1)).epsilon(1e-3));
  CHECK(width_of(0) == Approx(1.5 * width_of(2)).epsilon(1e-3));
  // The lines of the labels, joined again.
  std::string drawn;
  for (std::size_t at = 0; (at = html.find("<text class=\"label\"", at)) != std::string::npos; ++at) {
    const std::size_t begin = html.find('>', at) + 1;
    const std::string line = html.substr(begin, html.find('<', begin) - begin);
    CHECK(display_width(line) <= 36);
    drawn += line;
  }
  CHECK(drawn == word + mode);
}

TEST_CASE("a single bar is no chart: its parts are said", "[html]") {
  BarChart chart;
  chart.id = chart.title = "breakdown";
  chart.stacked = true;
  chart.series = {{"compute", "compute"}, {"exposed tp", "comm-tp"}, {"bubble", "bubble"}};
  chart.rows = {{"2 ranks", "plain", {{"predicted", {{0, 75}, {1, 25}, {2, 0}}}}}};
  const std::string html = bar_section(chart);
  CHECK_THAT(html, !Contains("<svg") && Contains("2 ranks, plain, predicted: 100.0 ms"));
  CHECK_THAT(html, Contains("<i class=\"compute\"></i>compute 75.00 ms (75.0 %)") && !Contains("bubble 0"));
  CHECK_THAT(html, Contains("<i class=\"comm-tp\"></i>exposed tp 25.00 ms (25.0 %)"));
}
