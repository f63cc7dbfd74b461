#pragma once
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Scenario → verified-to-be schedule: lowering, then the rewrites of the overlap modes whose knobs are on. Knobs that
// are on but cannot act (dp 1) are named in Schedule::notes.
Schedule build_schedule(const Scenario& scenario);

}  // namespace stretto
