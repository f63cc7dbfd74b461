#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ask/request.hpp"
#include "model/overlap/gates.hpp"
#include "model/verify/verify.hpp"

namespace stretto::ask {

// The schedule of a scenario. Its fusions are those of a run on the platform that the request names.
struct ShowAnswer {
  Transformer model;
  VerifiedSchedule verified;
};

// Throw Error(input) as Asked::read_platform() and build_schedule() do.
ShowAnswer show(Asked& asked);
Gates gates(Asked& asked);

std::string text_of(const ShowAnswer& answer);
nlohmann::json json_of(const ShowAnswer& answer);  // `show` in docs/json.md

}  // namespace stretto::ask
