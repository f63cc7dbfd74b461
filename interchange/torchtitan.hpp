#pragma once
#include <string>
#include <string_view>
#include <tuple>

#include "interchange/imported.hpp"
#include "model/scenario.hpp"

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

// Returns a configuration in TOML that torchtitan's parser takes (keys of job_config.py, release 0.2). A setting that
// torchtitan does not have becomes its nearest one with a note. Throws Error(input) for models and layouts that it
// cannot have: models without a flavor, experts, attention by exchanged heads, unequal stages, other recipes of fp8.
Translation to_torchtitan(const Scenario& scenario);

}  // namespace stretto
