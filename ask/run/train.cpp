#include "ask/run/train.hpp"

#include "exec/training_json.hpp"

namespace stretto::ask {

nlohmann::json json_of(const exec::TrainResult& result, const Utilisation& utilisation,
                       const nlohmann::json& cpu_affinity) {
  const auto known = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  };
  nlohmann::json json = exec::training_json(result);
  json["mfu"] = known(utilisation.mfu);
  json["hfu"] = known(utilisation.hfu);
  json["tflops_per_gpu"] = known(utilisation.tflops_per_gpu);
  json["cpu_affinity"] = cpu_affinity;
  return json;
}

}  // namespace stretto::ask
