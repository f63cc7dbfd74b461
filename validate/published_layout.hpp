#pragma once
#include <string>
#include <vector>

#include "validate/published_scenario.hpp"

namespace stretto::validate {

// Completes the numbers of ranks that a row leaves blank: what gpus and the other numbers leave, else 1 where that is
// stated by the framework (FSDP) or changes nothing that is known. Each number that does not follow is an assumption.
// Returns the reason why the row is no layout; "" where it is one.
std::string complete_layout(PublishedRun& run, std::vector<std::string>& assumptions);

}  // namespace stretto::validate
