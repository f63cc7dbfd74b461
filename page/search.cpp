#include "page/search.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/toml.hpp"
#include "sweep/search.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenParts = std::chrono::milliseconds(200);
constexpr std::size_t kMostReasons = 5;

sweep::Space space_of(const ask::Asked& asked, const Json& request) {
  std::vector<std::string> over = request.value("over", std::vector<std::string>{"layout=legal"});
  const std::int64_t gpus = request.value("gpus", std::int64_t{0});
  over.push_back("gpus=" + std::to_string(gpus > 0 ? gpus : asked.scenario.parallel.ranks()));
  return sweep::read_space(parse_toml("", "search").section("sweep"), over, asked.scenario, *asked.platform);
}

// How a search goes on, and the points that no part has had yet.
struct Progress {
  std::map<sweep::Status, std::int64_t> counts;
  std::map<std::string, std::int64_t> reasons;
  Json points = Json::array();
  Clock::time_point last = Clock::now();

  void add(const sweep::Point& point) {
    ++counts[point.status];
    if (point.status == sweep::Status::refused) ++reasons[point.reason];
    if (point.status != sweep::Status::predicted) return;
    points.push_back({{"set", point.set},
                      {"step_ms", point.step_ms},
                      {"memory_bytes", point.memory_bytes},
                      {"device_bytes", point.device_bytes},
                      {"fit", name_of(point.fit)},
                      {"mfu", point.mfu ? Json(*point.mfu) : Json(nullptr)},
                      {"tokens_per_s_per_gpu", point.tokens_per_s_per_gpu}});
  }

  Json part(const sweep::Space& space, std::int64_t decided) {
    Json part = {{"layouts", space.points()},
                 {"decided", decided},
                 {"refused", counts[sweep::Status::refused]},
                 {"does_not_fit", counts[sweep::Status::does_not_fit]},
                 {"slower", counts[sweep::Status::slower]},
                 {"predicted", counts[sweep::Status::predicted]},
                 {"points", std::move(points)}};
    points = Json::array();
    last = Clock::now();
    return part;
  }

  Json most_frequent_reasons() const {
    std::vector<std::pair<std::int64_t, std::string>> sorted;
    for (const auto& [reason, layouts] : reasons) sorted.emplace_back(-layouts, reason);
    std::sort(sorted.begin(), sorted.end());
    Json list = Json::array();
    for (std::size_t i = 0; i < std::min(kMostReasons, sorted.size()); ++i)
      list.push_back({{"reason", sorted[i].second}, {"layouts", -sorted[i].first}});
    return list;
  }
};

}  // namespace

Json search_of(const ask::Asked& asked, const Json& request) {
  const sweep::Space space = space_of(asked, request);
  Progress progress;
  Json first = progress.part(space, 0);
  for (const sweep::Axis& axis : space.axes) first["axes"].push_back({{"key", axis.key}, {"values", axis.values}});
  say_part(first.dump());
  std::int64_t decided = 0;
  const sweep::SearchOptions options{.best = request.value("best", std::size_t{10}),
                                     .all = false,
                                     .shard = request.value("shard", std::int64_t{0}),
                                     .shards = request.value("shards", std::int64_t{1})};
  const sweep::SearchResult result =
      sweep::search(space, asked.scenario, options,
                    {[&](const sweep::PointSettings& settings) { return asked.with(settings.set); },
                     [&](const sweep::PointSettings&) -> const sim::Platform& { return *asked.platform; },
                     [](const sweep::PointSettings&) { return std::string(); },
                     [](const std::string&) -> const sweep::Point* { return nullptr; },
                     [&](const sweep::Point& point, bool, const sweep::SearchProgress& now) {
                       progress.add(point);
                       decided = now.decided;
                       if (Clock::now() - progress.last >= kBetweenParts)
                         say_part(progress.part(space, now.decided).dump());
                     },
                     [] { return false; }});
  Json answer = progress.part(space, decided);
  answer["indivisible"] = result.indivisible;
  answer["reasons"] = progress.most_frequent_reasons();
  return answer;
}

}  // namespace stretto::page
