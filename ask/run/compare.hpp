#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "compare/compare.hpp"
#include "sim/platform.hpp"

namespace stretto::ask {

// Throws Error(input) where the platform is not of the machine that compare::run() measures with a backend, "host" or
// "cuda".
void require_comparable(const sim::Platform& platform, const std::string& backend);

// Returns `compare` in docs/json.md. `cpu_affinity`: the processors of each rank, where processes were bound.
nlohmann::json json_of(const compare::Result& result, const nlohmann::json& cpu_affinity = nullptr);

}  // namespace stretto::ask
