#include "sweep/charts.hpp"

#include <catch2/catch.hpp>

#include "report/html_plot.hpp"
#include "sweep/ranking.hpp"
#include "sweep/tables.hpp"

namespace stretto::sweep {
namespace {

Point predicted(std::int64_t gpus, const char* tp, double step_ms, double GiB) {
  Point point;
  point.status = Status::predicted;
  point.gpus = gpus;
  point.set = {std::string("parallel.tensor_model_parallel_size=") + tp};
  point.step_ms = step_ms;
  point.tokens_per_s_per_gpu = 4e6 / step_ms / double(gpus);
  point.memory_bytes = static_cast<std::int64_t>(GiB * (1 << 30));
  point.device_bytes = std::int64_t{80} << 30;
  return point;
}

Space tensor_sizes() { return {{{"parallel.tensor_model_parallel_size", {"1", "2", "4"}}}}; }

}  // namespace

TEST_CASE("the Pareto plot has each predicted point where its step and memory are, and ties as areas") {
  SearchResult result;
  result.points = {predicted(8, "1", 2000, 60), predicted(8, "2", 2040, 30), predicted(8, "4", 2600, 20),
                   predicted(8, "1", 3000, 70)};
  result.points.emplace_back().status = Status::slower;
  const std::vector<std::size_t> front = pareto_front(result.points);
  REQUIRE(front == std::vector<std::size_t>{0, 1, 2});
  const auto plot = pareto_plot(tensor_sizes(), result, front, nullptr);
  REQUIRE(plot);
  REQUIRE(plot->series.size() == 2);
  CHECK(plot->y_name == "step, s");
  REQUIRE(plot->series[0].points.size() == 1);
  CHECK(plot->series[0].points[0].x == 70);
  CHECK(plot->series[0].points[0].y == 3);
  REQUIRE(plot->series[1].points.size() == 3);
  for (std::size_t i = 0; i < front.size(); ++i) {
    CHECK(plot->series[1].points[i].x == double(result.points[front[i]].memory_bytes) / (1 << 30));
    CHECK(plot->series[1].points[i].y == result.points[front[i]].step_ms / 1000);
  }
  CHECK(plot->series[1].points[1].name.find("tp 2: 2.040 s") == 0);
  REQUIRE(plot->x_guides.size() == 1);
  CHECK(plot->x_guides[0].from == 80);
  REQUIRE(plot->y_guides.size() == 1);  // the two fastest; the third has no tie
  CHECK(plot->y_guides[0].from == 2);
  CHECK(plot->y_guides[0].to == Approx(2 * (1 + kTie)));
  // Steps of unlike numbers of GPUs cannot be compared.
  result.points[1] = predicted(16, "2", 2040, 30);
  CHECK(pareto_plot(tensor_sizes(), result, pareto_front(result.points), nullptr)->y_name == "tokens/s a GPU");
  CHECK_FALSE(pareto_plot(tensor_sizes(), {}, {}, nullptr));
}

TEST_CASE("what is ranked is said: the fastest on one number of GPUs, else the most efficient and the fastest") {
  std::vector<Point> points = {predicted(8, "1", 2600, 20), predicted(8, "2", 2000, 60)};
  const Ranking one = ranking_of(points, fastest(points));
  CHECK(one.first_name() == std::string("fastest"));
  CHECK(one.first == 1);
  CHECK(one.fastest == 1);
  CHECK(ranking_text(one, points) == "ranked by tokens per GPU-second, all on 8 GPUs: the first is the fastest");
  // 128 GPUs with 54.8 s are more efficient than 2,048 with 3.84 s, and not faster.
  points = {predicted(2048, "1", 3840, 20), predicted(128, "1", 54800, 60)};
  const Ranking several = ranking_of(points, fastest(points));
  CHECK(several.first_name() == std::string("most efficient"));
  CHECK(several.first == 1);
  CHECK(several.fastest == 0);
  CHECK(ranking_text(several, points) ==
        "ranked by efficiency, tokens per GPU-second: the first, on 128 GPUs, is the most efficient (54.80 s a step); "
        "most tokens per second in all has 2048 GPUs (3.840 s a step, 89.2 % of the first's tokens per GPU-second)");
}

TEST_CASE("scaling curves have the points' tokens and the exposed shares of their steps") {
  SearchResult result;
  result.points = {predicted(8, "1", 2000, 60), predicted(16, "2", 1100, 30), predicted(32, "2", 700, 30)};
  std::vector<Prediction> steps(3);
  const double exposed_ms[] = {20, 55, 140};
  for (std::size_t i = 0; i < 3; ++i) {
    steps[i].step_ms = result.points[i].step_ms;
    steps[i].devices = result.points[i].gpus;
    steps[i].breakdown.exposed = exposed_ms[i];
    steps[i].exposed = {{"dp", Coord::dp, LinkKind::network, exposed_ms[i] - 10},
                        {"tp", Coord::tp, LinkKind::nvlink, 10}};
  }
  const std::vector<Plot> plots = scaling_plots(tensor_sizes(), result, {0, 1, 2}, steps);
  REQUIRE(plots.size() == 2);
  REQUIRE(plots[0].series.size() == 1);
  REQUIRE(plots[1].series.size() == 3);  // all, dp, tp; nothing of pp, cp and ep
  CHECK(plots[1].series[1].name == "dp");
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(plots[0].series[0].points[i].x == double(result.points[i].gpus));
    CHECK(plots[0].series[0].points[i].y == result.points[i].tokens_per_s_per_gpu);
    CHECK(plots[1].series[0].points[i].y == Approx(100 * exposed_ms[i] / result.points[i].step_ms));
    CHECK(plots[1].series[1].points[i].y == Approx(100 * (exposed_ms[i] - 10) / result.points[i].step_ms));
  }
  CHECK(plots[1].caption.find("1.0 % on 8 GPUs is the least, 20.0 % on 32 the most") != std::string::npos);
  CHECK(scaling_plots(tensor_sizes(), result, {0}, {steps[0]}).empty());
}

}  // namespace stretto::sweep
