#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "sweep/point.hpp"

namespace stretto::sweep {

// The order of points ranks tokens per GPU-second. Among points on equally many GPUs the first is also the
// fastest. Among others it is the most efficient, and the fastest is another, as a rule on more GPUs.
struct Ranking {
  bool has_several_gpus = false;
  std::size_t first = 0, fastest = 0;  // indices: most tokens per GPU-second; most tokens per second on all its GPUs

  // Returns what the first point is called: "fastest" or "most efficient".
  const char* first_name() const { return has_several_gpus ? "most efficient" : "fastest"; }
};
// Returns the ranking of predicted points, at least one, in the order of fastest().
Ranking ranking_of(const std::vector<Point>& points, const std::vector<std::size_t>& order);
// Returns a line that says what is ranked, and on several numbers of GPUs the fastest too.
std::string ranking_text(const Ranking& ranking, const std::vector<Point>& points);
constexpr const char* kRankedBy = "tokens_per_s_per_gpu";  // in JSON

}  // namespace stretto::sweep
