#include "exec/training_json.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace stretto::exec {

nlohmann::json step_json(const TrainStep& s) {
  return {{"step", s.step},
          {"loss", s.loss},
          {"step_ms", s.step_ms},
          {"tokens_per_s", s.tokens_per_s},
          {"gradient_norm", s.gradient_norm},
          {"lr", s.lr},
          {"skipped", s.is_skipped}};
}

nlohmann::json training_json(const TrainResult& result) {
  nlohmann::json steps = nlohmann::json::array(), evaluations = nlohmann::json::array();
  for (const TrainStep& s : result.steps) steps.push_back(step_json(s));
  for (const Evaluation& e : result.evaluations)
    evaluations.push_back({{"step", e.step}, {"loss", e.loss}, {"tokens", e.tokens}});
  return {{"steps", std::move(steps)},
          {"evaluations", std::move(evaluations)},
          {"resumed_from", result.resumed_from >= 0 ? nlohmann::json(result.resumed_from) : nlohmann::json(nullptr)},
          {"finished", result.finished}};
}

}  // namespace stretto::exec
