#pragma once
#include <cstdint>
#include <limits>

#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Builds the schedule of a scenario, ready to be verified: lowering, then the rewrites of the overlap modes whose knobs
// are on. Schedule::notes names knobs that are on but cannot act (dp 1). A pure function. Throws Error(input) before it
// takes memory when the step would not fit in `free_bytes` of this machine (require_size); the default sets no limit.
Schedule build_schedule(const Scenario& scenario, std::int64_t free_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace stretto
