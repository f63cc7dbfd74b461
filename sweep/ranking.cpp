#include "sweep/ranking.hpp"

#include <fmt/format.h>

#include "report/units.hpp"

namespace stretto::sweep {

Ranking ranking_of(const std::vector<Point>& points, const std::vector<std::size_t>& order) {
  Ranking ranking{false, order.front(), order.front()};
  const auto tokens_per_s = [&](std::size_t i) { return points[i].tokens_per_s_per_gpu * double(points[i].gpus); };
  for (const std::size_t i : order) {
    ranking.has_several_gpus = ranking.has_several_gpus || points[i].gpus != points[order.front()].gpus;
    if (tokens_per_s(i) > tokens_per_s(ranking.fastest)) ranking.fastest = i;
  }
  // Points that the order puts last for another reason than speed are not the answer on one number of GPUs.
  if (!ranking.has_several_gpus) ranking.fastest = ranking.first;
  return ranking;
}

std::string ranking_text(const Ranking& ranking, const std::vector<Point>& points) {
  const Point &first = points[ranking.first], &fastest = points[ranking.fastest];
  if (!ranking.has_several_gpus)
    return fmt::format("ranked by tokens per GPU-second, all on {} GPUs: the first is the fastest", first.gpus);
  return fmt::format(
      "ranked by efficiency, tokens per GPU-second: the first, on {} GPUs, is the most efficient ({} a step); most "
      "tokens per second in all has {} GPUs ({} a step, {} of the first's tokens per GPU-second)",
      first.gpus, time_text(first.step_ms), fastest.gpus, time_text(fastest.step_ms),
      percent_text(fastest.tokens_per_s_per_gpu / first.tokens_per_s_per_gpu));
}

}  // namespace stretto::sweep
