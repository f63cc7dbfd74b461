#pragma once
#include <cstdint>
#include <limits>

#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Scenario → verified-to-be schedule: lowering, then the rewrites of the overlap modes whose knobs are on. Knobs that
// are on but cannot act (dp 1) are named in Schedule::notes. A pure function. Throws Error(input) before it takes
// memory when the step would not fit in `free_bytes` of this machine (require_size); by default nothing is asked.
Schedule build_schedule(const Scenario& scenario, std::int64_t free_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace stretto
