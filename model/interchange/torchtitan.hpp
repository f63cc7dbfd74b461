#pragma once
#include <string>
#include <string_view>

#include "model/interchange/imported.hpp"

namespace stretto {

// A scenario from a configuration of torchtitan in TOML (train_configs/*.toml, 2024 to February 2026): [model],
// [training], [parallelism] (in 2024 [training] and [experimental]), [activation_checkpoint], [compile]. Throws
// Error(input) as the readers of TOML and scenario_of().
Translation from_torchtitan(std::string_view text, const std::string& name, const ImportOptions& options = {});

}  // namespace stretto
