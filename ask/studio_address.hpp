#pragma once
#include <string>

#include "ask/request.hpp"

namespace stretto::ask {

// Returns what stands after the "#" of the studio's address (page/ui/src/state.ts) for a scenario, "" where the page
// cannot have it: on a platform that does not come with Stretto. A scenario that does not come with
// Stretto stands in it as TOML, because no other machine has its file.
std::string studio_address(const Asked& asked);

}  // namespace stretto::ask
