#pragma once
#include <nlohmann/json_fwd.hpp>

#include "ask/request.hpp"

namespace stretto::page {

// Answers about what else a step could be (page/answer.hpp). All of them throw as ask::simulate() does.

// Returns `step_low_ms`, `step_high_ms` and `from`; null, null and [] without published numbers.
nlohmann::json interval_of(const ask::Asked& asked);

// Returns `changes`: every other value next to the present one of each size and word of the layout, every switch of
// [overlap], and every recipe of low precision; not all are legal. `kind`: layout, switch or precision.
nlohmann::json changes_of(const ask::Asked& asked);

// Returns `machines`, each with `change`, `step_ms` and `saved_pct`, and `first` {`number`, `pct_per_pct`}, null where
// no number is known to change the step.
nlohmann::json hardware_of(const ask::Asked& asked);

// Returns `step_ms`, `change_pct`, `memory_bytes`, `memory_change_bytes`, `device_bytes`, `memory_verdict` and `mfu` of
// the other, which are compared with the first. The first is predicted once for all questions about it.
nlohmann::json trial_of(ask::Asked& first, ask::Asked& other);

// Returns `unsure_pct`, half of the 80 % interval of the ratio of the other step to the first, in percent: changes of
// both by one number of the platform partly cancel. null where the two have different platforms or profiles.
nlohmann::json ratio_of(const ask::Asked& first, const ask::Asked& other, bool have_one_profile);

}  // namespace stretto::page
