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
#include "sweep/names.hpp"

namespace stretto::sweep {
namespace {

// Returns whether the costs of operations follow from the key's value.
bool makes_family(const std::string& key) { return key != kPp && key != kVp && key != kDp && key != kBatch; }

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

struct Looker::Known {
  std::size_t best;
  bool all;
  Families families = {};
  std::mutex mutex = {};
  std::map<std::string, std::multiset<double>> steps = {};  // [group] the best steps

  double limit_ms(const std::multiset<double>& of_group) const {
    return all || of_group.size() < best ? std::numeric_limits<double>::infinity() : *of_group.rbegin();
  }
};

Looker::Looker(std::size_t best, bool all) : known_(new Known{best, all}) {}
Looker::~Looker() = default;
Looker::Looker(Looker&&) noexcept = default;
Looker& Looker::operator=(Looker&&) noexcept = default;

Point Looker::look_at(const PointSettings& settings, const Read& read, const ReadPlatform& platform) {
  Point point;
  point.set = settings.set;
  point.platform = settings.platform;
  try {
    sweep::look_at(point, read(), platform(), known_->families);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    point.status = Status::refused;
    point.reason = error.what();
  }
  return point;
}

void Looker::decide(Point& point, const Space& space, const std::vector<std::string>& values, const Read& read,
                    const ReadPlatform& platform) {
  double limit_ms = 0;
  {
    const std::lock_guard lock(known_->mutex);
    limit_ms = known_->limit_ms(known_->steps[group_of(space, values)]);
  }
  if (is_slower(point, limit_ms)) return;  // its scenario need not be read again
  sweep::decide(point, read(), platform(), known_->families, limit_ms);
  add(space, values, point);
}

void Looker::add(const Space& space, const std::vector<std::string>& values, const Point& point) {
  // A tight step may not run, so it rules out no slower one that fits.
  if (point.status != Status::predicted || point.fit != Fit::fits) return;
  const std::lock_guard lock(known_->mutex);
  std::multiset<double>& steps = known_->steps[group_of(space, values)];
  steps.insert(point.step_ms);
  if (steps.size() > known_->best) steps.erase(std::prev(steps.end()));
}

double Looker::highest_limit_ms() const {
  const std::lock_guard lock(known_->mutex);
  double highest = known_->steps.empty() ? std::numeric_limits<double>::infinity() : 0;
  for (const auto& [group, steps] : known_->steps) highest = std::max(highest, known_->limit_ms(steps));
  return highest;
}

std::int64_t number_at(const Space& space, std::int64_t place) {
  const std::int64_t count = space.points();
  std::int64_t stride = count * 618 / 1000 + 1;
  while (std::gcd(stride, count) != 1) ++stride;
  return place * stride % count;
}

namespace {

// One search: windows one after the other, each in two passes on all processors.
class Search {
 public:
  Search(const Space& space, const Scenario& scenario, const SearchOptions& options, const SearchCalls& calls)
      : space_(space), scenario_(scenario), options_(options), calls_(calls), looker_(options.best, options.all) {}

  SearchResult run() {
    for (std::int64_t begin = 0; begin < space_.points() && !stopped_; begin += kWindow) {
      each(std::min(kWindow, space_.points() - begin), [&](std::int64_t i) { look_at(number_at(space_, begin + i)); });
      std::sort(open_.begin(), open_.end(), [](const Open& a, const Open& b) {
        return std::pair(a.point.bound_ms, a.number) < std::pair(b.point.bound_ms, b.number);
      });
      each(std::ssize(open_), [&](std::int64_t i) { decide(static_cast<std::size_t>(i)); });
      open_.clear();
      progress_.tried = progress_.to_try = 0;
    }
    if (problem_) std::rethrow_exception(problem_);
    SearchResult result;
    for (auto& [number, point] : found_) result.points.push_back(std::move(point));
    result.indivisible = indivisible_;
    result.complete = !stopped_;
    return result;
  }

 private:
  struct Open {
    std::int64_t number = 0;
    Point point;
    bool was_slower = false;  // in a former run
  };

  template <class Act>
  void each(std::int64_t count, Act act) {
    parallel_each(count, [&](std::int64_t i) {
      if (stopped_) return;
      try {
        act(i);
        if (calls_.stop()) stopped_ = true;
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!problem_) problem_ = std::current_exception();
        stopped_ = true;
      }
    });
  }

  void look_at(std::int64_t number) {
    const std::vector<std::string> values = space_.at(number);
    const bool is_of_shard =
        options_.shards == 1 ||
        static_cast<std::int64_t>(family_of(space_, values) % std::uint64_t(options_.shards)) == options_.shard;
    const std::optional<PointSettings> settings =
        is_of_shard ? settings_of(space_, values, scenario_) : std::optional<PointSettings>();
    if (!settings) {
      const std::lock_guard lock(mutex_);
      ++progress_.decided;
      indivisible_ += is_of_shard;
      return;
    }
    const std::string key = calls_.key(*settings);
    const Point* known = calls_.known(key);
    Point point = known != nullptr ? *known : looker_.look_at(*settings, reader(*settings), platform(*settings));
    point.key = key;
    if (known != nullptr) looker_.add(space_, values, point);
    // Whether a point is too slow depends on the options and on the others.
    const bool was_slower = known != nullptr && point.status == Status::slower;
    if (was_slower) point.status = Status::open;
    const std::lock_guard lock(mutex_);
    if (point.status == Status::open)
      open_.push_back({number, std::move(point), was_slower});
    else
      keep(number, std::move(point), known == nullptr);
  }

  void decide(std::size_t at) {
    Open& open = open_[at];
    const PointSettings settings{open.point.set, open.point.platform};
    looker_.decide(open.point, space_, space_.at(open.number), reader(settings), platform(settings));
    const double limit_ms = looker_.highest_limit_ms();
    const std::lock_guard lock(mutex_);
    ++progress_.tried;
    progress_.to_try = std::upper_bound(open_.begin(), open_.end(), limit_ms,
                                        [](double limit, const Open& o) { return limit < o.point.bound_ms; }) -
                       open_.begin();
    keep(open.number, open.point, !open.was_slower || open.point.status != Status::slower);
  }

  // The caller holds the mutex.
  void keep(std::int64_t number, Point point, bool is_new) {
    ++progress_.decided;
    calls_.report(point, is_new, progress_);
    found_.emplace(number, std::move(point));
  }

  Looker::Read reader(const PointSettings& settings) const {
    return [this, &settings] { return calls_.read(settings); };
  }
  Looker::ReadPlatform platform(const PointSettings& settings) const {
    return [this, &settings]() -> const sim::Platform& { return calls_.platform(settings); };
  }

  const Space& space_;
  const Scenario& scenario_;
  const SearchOptions& options_;
  const SearchCalls& calls_;
  Looker looker_;
  std::mutex mutex_;
  std::vector<Open> open_;
  std::map<std::int64_t, Point> found_;  // [number of the point]
  std::int64_t indivisible_ = 0;
  SearchProgress progress_;
  std::atomic<bool> stopped_{false};
  std::exception_ptr problem_;
};

}  // namespace

SearchResult search(const Space& space, const Scenario& scenario, const SearchOptions& options,
                    const SearchCalls& calls) {
  return Search(space, scenario, options, calls).run();
}

std::vector<std::size_t> fastest(const std::vector<Point>& points) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (points[i].status == Status::predicted) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Point &left = points[a], &right = points[b];
    if (left.fit != right.fit) return left.fit < right.fit;
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
