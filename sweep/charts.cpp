#include "sweep/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/units.hpp"
#include "sweep/ranking.hpp"
#include "sweep/tables.hpp"

namespace stretto::sweep {
namespace {

constexpr double kGiB = 1 << 30;

// Returns whether all predicted points compute as many tokens in a step, on as many GPUs, so that steps can be
// compared.
bool has_equal_work(const std::vector<Point>& points) {
  const Point* first = nullptr;
  const auto tokens = [](const Point& point) { return point.step_ms * point.tokens_per_s_per_gpu; };
  for (const Point& point : points) {
    if (point.status != Status::predicted) continue;
    if (first == nullptr) first = &point;
    if (point.gpus != first->gpus || std::abs(tokens(point) / tokens(*first) - 1) > 1e-9) return false;
  }
  return true;
}

}  // namespace

std::optional<Plot> pareto_plot(const Space& space, const SearchResult& result, const std::vector<std::size_t>& front,
                                const Prediction* own) {
  const std::vector<std::size_t> order = fastest(result.points);
  if (order.empty()) return std::nullopt;
  const bool shows_steps = has_equal_work(result.points);
  double slowest_ms = own != nullptr ? own->step_ms : 0;
  for (const std::size_t i : order) slowest_ms = std::max(slowest_ms, result.points[i].step_ms);
  const Unit unit = time_unit(slowest_ms);
  const auto height = [&](double step_ms, double tokens) { return shows_steps ? step_ms / unit.per_unit : tokens; };
  const auto place = [&](const Point& point) {
    return PlotPoint{
        double(point.memory_bytes) / kGiB, height(point.step_ms, point.tokens_per_s_per_gpu),
        fmt::format("{}: {}, {:.1f} tokens/s a GPU, {}", name_of_layout(space, point), time_text(point.step_ms),
                    point.tokens_per_s_per_gpu, size_text(double(point.memory_bytes)))};
  };
  Plot plot;
  plot.id = "pareto-plot";
  plot.title = shows_steps ? "Step against memory" : "Tokens per second and GPU against memory";
  plot.x_name = "memory of a device, GiB";
  plot.y_name = shows_steps ? "step, " + unit.name : "tokens/s a GPU";
  const Ranking ranking = ranking_of(result.points, order);
  plot.series = {{"simulated", false, {}},
                 {fmt::format("Pareto front: no other is {} with less memory",
                              ranking.has_several_gpus ? "more efficient" : "faster"),
                  true,
                  {}}};
  const std::set<std::size_t> on_front(front.begin(), front.end());
  for (const std::size_t i : order)
    if (on_front.count(i) == 0) plot.series[0].points.push_back(place(result.points[i]));
  for (const std::size_t i : front) plot.series[1].points.push_back(place(result.points[i]));
  if (own != nullptr)
    plot.series.push_back(
        {"the scenario as it is",
         false,
         {{double(own->memory.predicted_bytes()) / kGiB, height(own->step_ms, own->throughput.tokens_per_s_per_device),
           fmt::format("the scenario as it is: {}, {}", time_text(own->step_ms),
                       size_text(double(own->memory.predicted_bytes())))}}});
  std::set<std::int64_t> devices;
  for (const std::size_t i : order) devices.insert(result.points[i].device_bytes);
  devices.erase(0);
  for (const std::int64_t bytes : devices)
    plot.x_guides.push_back({double(bytes) / kGiB, double(bytes) / kGiB, "a device has " + size_text(double(bytes))});
  // Ties of the front, from the first of each group on.
  std::size_t groups = 0;
  for (std::size_t begin = 0; begin < front.size(); ++groups) {
    const Point& first = result.points[front[begin]];
    std::size_t end = begin;
    while (end < front.size() && first.tokens_per_s_per_gpu / result.points[front[end]].tokens_per_s_per_gpu - 1 < kTie)
      ++end;
    if (end - begin > 1 || begin == 0)
      plot.y_guides.push_back(
          {height(first.step_ms, first.tokens_per_s_per_gpu),
           height(first.step_ms * (1 + kTie), first.tokens_per_s_per_gpu / (1 + kTie)),
           begin == 0 ? fmt::format("within {} of the {}: ties", percent_text(kTie), ranking.first_name()) : "ties"});
    begin = end;
  }
  plot.caption = fmt::format(
      "Each mark is a simulated layout. Layouts of one shaded area are within {} of its best: predictions cannot "
      "rank "
      "them. Layouts whose bounds are above the best steps were not simulated and are not drawn; --all draws them too.",
      percent_text(kTie));
  const Point& best = result.points[order.front()];
  plot.description = fmt::format(
      "{} simulated layouts, {} of them on the Pareto front, in {} groups of ties. The {} takes {} and {}. The "
      "front "
      "is a table below.",
      order.size(), front.size(), groups, ranking.first_name(), time_text(best.step_ms),
      size_text(double(best.memory_bytes)));
  return plot;
}

std::vector<Plot> scaling_plots(const Space& space, const SearchResult& result, const std::vector<std::size_t>& points,
                                const std::vector<Prediction>& steps) {
  if (std::min(points.size(), steps.size()) < 2) return {};
  const auto gpus = [&](std::size_t i) { return double(result.points[points[i]].gpus); };
  Plot rate, exposed;
  rate.id = "scaling-plot";
  rate.title = "Tokens per second and GPU by the number of GPUs";
  rate.y_name = "tokens/s a GPU";
  rate.series = {{"the best layout of each number of GPUs", true, {}}};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Point& point = result.points[points[i]];
    rate.series[0].points.push_back({gpus(i), point.tokens_per_s_per_gpu,
                                     fmt::format("{} GPUs, {}: {:.1f} tokens/s a GPU", point.gpus,
                                                 name_of_layout(space, point), point.tokens_per_s_per_gpu)});
  }
  exposed.id = "exposed-plot";
  exposed.title = "Exposed communication by the number of GPUs";
  exposed.y_name = "share of the step, %";
  const auto add = [&](const std::string& name, const auto& ms_of) {
    PlotSeries series{name, true, {}};
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double share = ms_of(steps[i]) / steps[i].step_ms;
      series.points.push_back(
          {gpus(i), 100 * share,
           fmt::format("{} GPUs, {}: {} of the step", steps[i].devices, name, percent_text(share))});
    }
    // An axis that nowhere reaches the last digit of the tables is not drawn.
    constexpr double kShown = 0.05;
    if (exposed.series.empty() || std::any_of(series.points.begin(), series.points.end(),
                                              [&](const PlotPoint& point) { return point.y >= kShown; }))
      exposed.series.push_back(std::move(series));
  };
  add("all exposed communication", [](const Prediction& p) { return p.breakdown.exposed; });
  for (const Coord axis : {Coord::dp, Coord::tp, Coord::pp, Coord::cp, Coord::ep})
    add(name_of(axis), [axis](const Prediction& p) { return p.exposed_ms(axis); });
  for (Plot* plot : {&rate, &exposed}) {
    plot->x_name = "GPUs";
    plot->x_is_logarithmic = plot->y_from_0 = true;
  }
  const auto& all = exposed.series.front().points;
  const auto [least, most] =
      std::minmax_element(all.begin(), all.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
  rate.caption = "The best layout of each number of GPUs. A level line is perfect scaling.";
  exposed.caption = fmt::format(
      "The part of the step that overlap does not hide, of the same layouts: in all, and by axis. Where the line of "
      "all "
      "rises, overlap stops hiding. {:.1f} % on {:g} GPUs is the least, {:.1f} % on {:g} the most.",
      least->y, least->x, most->y, most->x);
  rate.description =
      fmt::format("{:.1f} on {:g} GPUs, {:.1f} on {:g}. The numbers are a table below.",
                  rate.series[0].points.front().y, gpus(0), rate.series[0].points.back().y, gpus(steps.size() - 1));
  exposed.description = exposed.caption + " The numbers are a table below.";
  return {rate, exposed};
}

}  // namespace stretto::sweep
