#include "sweep/search.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "base/checksum.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "sweep/evaluate.hpp"

namespace stretto::sweep {
namespace {

// Keys whose values make a family: costs of operations follow from them.
bool makes_family(const std::string& key) {
  for (const char* name : {"gpus", "platform", "parallel.tensor_model_parallel_size", "parallel.context_parallel_size",
                           "parallel.expert_model_parallel_size", "training.micro_batch_size"})
    if (key == name) return true;
  return false;
}

std::uint64_t family_of(const Space& space, const std::vector<std::string>& values) {
  Checksum sum;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (makes_family(space.axes[i].key)) sum.add(space.axes[i].key + "=" + values[i] + ";");
  return sum.value();
}

// Returns what must be equal for two steps to be compared.
std::string group_of(const Space& space, const std::vector<std::string>& values) {
  std::string group;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const std::string& key = space.axes[i].key;
        key == "gpus" || key == "platform" || key == "training.global_batch_size" || key.rfind("model.", 0) == 0)
      group += values[i] + ";";
  return group;
}

}  // namespace

struct Looker::Bests {
  std::size_t best;
  bool all;
  std::mutex mutex = {};
  std::map<std::string, std::multiset<double>> steps = {};  // [group] the best steps

  double limit_ms(const std::string& group) {
    const std::lock_guard lock(mutex);
    const std::multiset<double>& of_group = steps[group];
    return all || of_group.size() < best ? std::numeric_limits<double>::infinity() : *of_group.rbegin();
  }
};

Looker::Looker(std::size_t best, bool all) : bests_(new Bests{best, all}) {}
Looker::~Looker() = default;
Looker::Looker(Looker&&) noexcept = default;
Looker& Looker::operator=(Looker&&) noexcept = default;

Point Looker::look_at(const Space& space, const std::vector<std::string>& values, const PointSettings& settings,
                      const std::function<Scenario()>& read, const std::function<const sim::Platform&()>& platform) {
  Point point;
  point.set = settings.set;
  point.platform = settings.platform;
  const std::string group = group_of(space, values);
  try {
    evaluate(point, read(), platform(), [&] { return bests_->limit_ms(group); });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    point.reason = error.what();
  }
  add(space, values, point);
  return point;
}

void Looker::add(const Space& space, const std::vector<std::string>& values, const Point& point) {
  if (point.status != Status::predicted) return;
  const std::lock_guard lock(bests_->mutex);
  std::multiset<double>& steps = bests_->steps[group_of(space, values)];
  steps.insert(point.step_ms);
  if (steps.size() > bests_->best) steps.erase(std::prev(steps.end()));
}

std::int64_t number_at(const Space& space, std::int64_t place) {
  const std::int64_t count = space.points();
  std::int64_t stride = count * 618 / 1000 + 1;
  while (std::gcd(stride, count) != 1) ++stride;
  return place * stride % count;
}

SearchResult search(const Space& space, const Scenario& scenario, const SearchOptions& options,
                    const SearchCalls& calls) {
  std::mutex mutex;
  std::map<std::int64_t, Point> found;  // [number of the point]
  std::atomic<std::int64_t> indivisible{0}, looked_at{0};
  std::atomic<bool> stopped{false};
  std::exception_ptr problem;
  Looker looker(options.best, options.all);
  const auto look_at = [&](std::int64_t number) {
    ++looked_at;
    const std::vector<std::string> values = space.at(number);
    if (options.shards > 1 &&
        static_cast<std::int64_t>(family_of(space, values) % std::uint64_t(options.shards)) != options.shard)
      return;
    const std::optional<PointSettings> settings = settings_of(space, values, scenario);
    if (!settings) {
      ++indivisible;
      return;
    }
    const std::string key = calls.key(*settings);
    const Point* known = calls.known(key);
    Point point = known != nullptr ? *known
                                   : looker.look_at(
                                         space, values, *settings, [&] { return calls.read(*settings); },
                                         [&]() -> const sim::Platform& { return calls.platform(*settings); });
    point.key = key;
    if (known != nullptr) looker.add(space, values, point);
    const std::lock_guard lock(mutex);
    calls.report(point, known == nullptr, looked_at);
    found.emplace(number, std::move(point));
  };
  parallel_each(space.points(), [&](std::int64_t place) {
    if (stopped) return;
    try {
      look_at(number_at(space, place));
      if (calls.stop()) stopped = true;
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!problem) problem = std::current_exception();
      stopped = true;
    }
  });
  if (problem) std::rethrow_exception(problem);
  SearchResult result;
  for (auto& [number, point] : found) result.points.push_back(std::move(point));
  result.indivisible = indivisible;
  result.complete = !stopped;
  return result;
}

std::vector<std::size_t> fastest(const std::vector<Point>& points) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (points[i].status == Status::predicted) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Point &left = points[a], &right = points[b];
    if (left.tokens_per_s_per_gpu != right.tokens_per_s_per_gpu)
      return left.tokens_per_s_per_gpu > right.tokens_per_s_per_gpu;
    return left.memory_bytes < right.memory_bytes;
  });
  return order;
}

std::vector<std::size_t> pareto_front(const std::vector<Point>& points) {
  std::vector<std::size_t> front;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t i : fastest(points)) {
    if (points[i].memory_bytes >= least) continue;
    least = points[i].memory_bytes;
    front.push_back(i);
  }
  return front;
}

}  // namespace stretto::sweep
