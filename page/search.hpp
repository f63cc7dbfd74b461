#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ask/request.hpp"

namespace stretto::page {

// A long answer gives its parts on the way; the page's module sets it (page/wasm.cpp).
inline void (*say_part)(const std::string& part) = [](const std::string&) {};

// Searches the layouts of a scenario on a number of GPUs, as `stretto plan` does. `request`: `gpus`, 0 for the scenario's;
// `over`: axes as --over has them, absent: all legal layouts; `best`: how many are wanted; `shard` and `shards`.
// Each part and the answer have
//   layouts   combinations of all shards; `decided`, `refused`, `does_not_fit`, `slower`, `predicted`: those of this one
//   points    new predicted points [{`set`, `step_ms`, `memory_bytes`, `device_bytes`, `fit`, `mfu`,
//             `tokens_per_s_per_gpu`}]
// and the first part has `axes` [{`key`, `values`}], the answer `reasons` [{`reason`, `layouts`}] of refused ones.
// Throws Error(input) as sweep::read_space() does.
nlohmann::json search_of(const ask::Asked& asked, const nlohmann::json& request);

}  // namespace stretto::page
