#include "report/layout_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace stretto {

std::string layout_text(const Parallel& p) {
  return fmt::format("tp {}, pp {}, vp {}, cp {}, dp {}", p.tensor_model_parallel_size, p.pipeline_model_parallel_size,
                     p.virtual_pipeline_model_parallel_size, p.context_parallel_size, p.data_parallel_size);
}

std::string layout_text(const Parallel& p, std::int64_t micro_batches) {
  std::string text = fmt::format("{}, {} micro-batch{}", layout_text(p), micro_batches, micro_batches == 1 ? "" : "es");
  if (p.pipeline_model_parallel_size > 1) text += fmt::format(", pipeline schedule {}", name_of(p.pipeline_schedule));
  return text;
}

nlohmann::json layout_json(const Parallel& p, std::int64_t micro_batches) {
  return {{"tp", p.tensor_model_parallel_size},
          {"pp", p.pipeline_model_parallel_size},
          {"vp", p.virtual_pipeline_model_parallel_size},
          {"cp", p.context_parallel_size},
          {"dp", p.data_parallel_size},
          {"micro_batches", micro_batches},
          {"pipeline_schedule", p.pipeline_model_parallel_size > 1 ? nlohmann::json(name_of(p.pipeline_schedule))
                                                                   : nlohmann::json(nullptr)}};
}

}  // namespace stretto
