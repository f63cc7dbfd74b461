#pragma once
#include <optional>
#include <vector>

#include "base/timeline.hpp"
#include "sim/components.hpp"
#include "sim/inputs.hpp"

namespace stretto::sim {

// Looks for a moment at which ranks are in the state in which they are a period later, but for a round of
// micro-batches. The state at a moment is the operations that lanes are at and since when, the work left of those that
// are active, and the host's clock. Work left follows from the times of all operations that were active since the first
// of them became ready. Borrows all arguments of its constructor.
class EqualMoments {
 public:
  // `parts`: ranks that communicate with no others within a round. The timeline has their rows.
  EqualMoments(const SimInputs& inputs, const std::vector<RankRows>& parts, const Timeline& timeline);

  // Before this moment every lane goes on as in a longer step.
  Picoseconds until() const { return until_; }

  // Returns the earlier of two such moments, if there are any. until() becomes earlier where a lane without rounds is
  // active before.
  std::optional<Picoseconds> find(Picoseconds period);

 private:
  struct LaneRows;
  template <class Visit>
  static bool each_lane(const RankRows& part, const Visit& visit);
  template <class Visit>
  bool each_lane(const Visit& visit) const;

  bool are_lanes_equal(Picoseconds now, Picoseconds period);
  Picoseconds equal_from(Picoseconds now, Picoseconds period) const;
  Picoseconds since(Picoseconds now) const;
  static bool is_host_equal(const RankRows& part, Picoseconds now, Picoseconds period);

  const SimInputs& inputs_;
  const std::vector<RankRows>& parts_;
  const Picoseconds step_begin_, delay_;  // a lane may begin `delay_` later than what it waited for
  Picoseconds until_ = 0;
};

}  // namespace stretto::sim
