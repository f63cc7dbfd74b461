#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sweep/point.hpp"
#include "sweep/settings.hpp"
#include "sweep/space.hpp"

namespace stretto::sweep {

// Decides points, and remembers families and the best steps so far of each group that can be compared: equal numbers of
// GPUs, equal batches, models and platforms. Only points that fit count among the best. Thread-safe.
class Looker {
 public:
  // A point whose bound is above the best-th step so far is not simulated, unless `all`.
  Looker(std::size_t best, bool all);
  ~Looker();
  Looker(Looker&&) noexcept;
  Looker& operator=(Looker&&) noexcept;

  using Read = std::function<Scenario()>;                      // may throw Error(input), which refuses the point
  using ReadPlatform = std::function<const sim::Platform&()>;  // likewise
  // Returns the point with these values, without a key; it is open where closed forms do not decide it.
  Point look_at(const PointSettings& settings, const Read& read, const ReadPlatform& platform);
  // Decides an open point with these values.
  void decide(Point& point, const Space& space, const std::vector<std::string>& values, const Read& read,
              const ReadPlatform& platform);
  // Remembers a step that is known already.
  void add(const Space& space, const std::vector<std::string>& values, const Point& point);
  // Returns the bound above which a point of no group is simulated.
  double highest_limit_ms() const;

 private:
  struct Known;
  std::unique_ptr<Known> known_;
};

// Returns the number of the point that a search looks at as the place-th. Points of one window are decided by closed
// forms, then the others in the order of their bounds; a stride makes each window a sample of the space.
std::int64_t number_at(const Space& space, std::int64_t place);
constexpr std::int64_t kWindow = 200'000;  // combinations

struct SearchOptions {
  std::size_t best = 10;  // a point whose bound is above the best-th step so far is not simulated
  bool all = false;       // simulates every point that fits
  // This search takes every `shards`-th family of points from the `shard`-th on. Points of one family differ
  // in pipeline, replicas and batch alone; a shard's file is part of the whole's.
  std::int64_t shard = 0, shards = 1;
};

// How far a search is. Of the points of a window that closed forms leave open, `to_try` may be among the best as far as
// is known; 0: they are still being looked for.
struct SearchProgress {
  std::int64_t decided = 0;  // combinations
  std::int64_t tried = 0, to_try = 0;
};

// Everything that a search asks its caller. All members are called from several threads at once except `done` and
// `report`, which are called by one at a time.
struct SearchCalls {
  std::function<Scenario(const PointSettings&)> read;  // throws Error(input) where the settings are refused
  std::function<const sim::Platform&(const PointSettings&)> platform;
  std::function<std::string(const PointSettings&)> key;       // Point::key
  std::function<const Point*(const std::string& key)> known;  // a point of an earlier search, or null
  std::function<void(const Point&, bool is_new, const SearchProgress&)> report;
  std::function<bool()> stop;
};

struct SearchResult {
  std::vector<Point> points;     // in the order of the space
  std::int64_t indivisible = 0;  // combinations whose sizes do not divide; they are no points
  bool complete = true;          // false: it was stopped
};

// Looks at every point of the space on all processors.
SearchResult search(const Space& space, const Scenario& scenario, const SearchOptions& options,
                    const SearchCalls& calls);

// Returns indices into `points`: predicted ones that fit by tokens per second and GPU, the most first; then those whose
// memory is tight, in the same order; equal ones by their memory. On one number of GPUs, with one batch, that is from the
// fastest to the slowest (sweep/ranking.hpp).
std::vector<std::size_t> fastest(const std::vector<Point>& points);
// Returns the predicted points that no other point beats in both step and memory, the fastest first.
std::vector<std::size_t> pareto_front(const std::vector<Point>& points);

}  // namespace stretto::sweep
