#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "exec/trainer.hpp"

namespace stretto::ask {

// Rates that the command measures of a training while it runs; absent where nothing was measured.
struct Utilisation {
  std::optional<double> mfu, hfu, tflops_per_gpu;
};

// Returns `train` in docs/json.md. `cpu_affinity`: the processors of each rank, where processes were bound.
nlohmann::json json_of(const exec::TrainResult& result, const Utilisation& utilisation = {},
                       const nlohmann::json& cpu_affinity = nullptr);

}  // namespace stretto::ask
