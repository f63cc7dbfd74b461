#pragma once
#include <nlohmann/json_fwd.hpp>

#include "ask/request.hpp"

namespace stretto::page {

// Answers about what else a step could be (page/answer.hpp). All of them throw as ask::simulate() does.

// Returns `changes`: every other value next to the present one of each size and word of the layout, every switch of
// [overlap], and every recipe of low precision; not all are legal. `kind`: layout, switch or precision.
nlohmann::json changes_of(const ask::Asked& asked);

// Returns `machines`, each with `change`, `step_ms` and `saved_pct`, and `first` {`number`, `pct_per_pct`}, null where
// no number is known to change the step.
nlohmann::json hardware_of(const ask::Asked& asked);

// Returns `step_ms`, `change_pct`, `memory_bytes`, `memory_change_bytes`, `device_bytes`, `memory_verdict` and `mfu` of
// the other, which are compared with the first. The first is predicted once for all questions about it.
nlohmann::json trial_of(ask::Asked& first, ask::Asked& other);

}  // namespace stretto::page
