#include "ask/run/compare.hpp"

#include "base/error.hpp"

namespace stretto::ask {

void require_comparable(const sim::Platform& platform, const std::string& backend) {
  if (platform.accelerator)
    throw input_error("platform " + platform.name +
                      " is of published GPUs; compare predicts the machine that it measures: run stretto calibrate, or "
                      "use stretto simulate");
  const bool is_gpu = backend == "cuda";
  if (platform.gpu.has_value() != is_gpu)
    throw input_error("platform " + platform.name + " was calibrated on a " + (is_gpu ? "host" : "GPU") +
                      ", and the backend is " + backend + "; expected one that `stretto calibrate --backend " +
                      backend + "` wrote: name it with --platform");
}

nlohmann::json json_of(const compare::Result& result, const nlohmann::json& cpu_affinity) {
  nlohmann::json json = comparison_json(result.comparison);
  json["cpu_affinity"] = cpu_affinity;
  return json;
}

}  // namespace stretto::ask
