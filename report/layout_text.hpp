#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/layout.hpp"

namespace stretto {

// Returns how a step is cut, for titles: "tp 4, pp 4, vp 5, cp 2, dp 2".
std::string layout_text(const Parallel& parallel);
// Adds micro-batches (of a rank, in a step) and, where there are stages, the pipeline schedule: "tp 4, pp 4, vp 5, cp
// 2, dp 2, 64 micro-batches, pipeline schedule 1f1b".
std::string layout_text(const Parallel& parallel, std::int64_t micro_batches);
// Returns `layout` of `simulate` in docs/json.md.
nlohmann::json layout_json(const Parallel& parallel, std::int64_t micro_batches);

}  // namespace stretto
