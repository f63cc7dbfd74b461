#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"

namespace stretto::predict {

// Places of a machine that are slower than all others.
struct Stragglers {
  std::vector<std::int64_t> ranks;  // whose computation takes `compute` times as long
  double compute = 1;
  // Ranks with a slow link: what they send or receive takes `link` times as long, latency apart. A collective is as
  // slow as its slowest member's link, because all its edges carry bytes at once (CollectiveCost).
  std::vector<std::int64_t> links;
  double link = 1;

  bool any() const { return (!ranks.empty() && compute != 1) || (!links.empty() && link != 1); }
};

// Gives the stragglers, and those that share a collective or a message with a slow link, costs of their own. Ranks must
// be those of the schedule.
void set_apart(sim::Costs& costs, const Schedule& schedule, const Stragglers& stragglers);

}  // namespace stretto::predict
