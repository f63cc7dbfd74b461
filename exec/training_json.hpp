#pragma once
#include <nlohmann/json_fwd.hpp>

#include "exec/trainer.hpp"

namespace stretto::exec {

// A training in the JSON of `stretto train` (docs/json.md).

// Returns a row of `steps`.
nlohmann::json step_json(const TrainStep& step);
// Returns `steps`, `evaluations`, `resumed_from` and `finished`.
nlohmann::json training_json(const TrainResult& result);

}  // namespace stretto::exec
