#pragma once
#include <string>
#include <string_view>
#include <tuple>

#include "model/interchange/imported.hpp"

namespace stretto {

// Settings on the command line in addition to the file.
struct TitanOverrides {
  std::vector<std::tuple<std::string, std::string, nlohmann::json>> values;  // section, key, value
  std::optional<std::int64_t> ranks;                                         // number of GPUs that are started
};

// Reads a scenario from a configuration of torchtitan in TOML (train_configs/*.toml, 2024 to February 2026): [model],
// [training], [parallelism] (in 2024 [training] and [experimental]), [activation_checkpoint], [compile]. Throws
// Error(input) as the readers of TOML and scenario_of().
Translation from_torchtitan(std::string_view text, const std::string& name, const ImportOptions& options = {},
                            const TitanOverrides& overrides = {});

}  // namespace stretto
