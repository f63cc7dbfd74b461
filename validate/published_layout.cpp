#include "validate/published_layout.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

namespace stretto::validate {

std::string complete_layout(PublishedRun& run, std::vector<std::string>& assumptions) {
  if (run.gpus == 0) return "no gpus given";
  const std::array<std::pair<const char*, std::int64_t*>, 3> sizes = {
      {{"tp", &run.tp}, {"pp", &run.pp}, {"cp", &run.cp}}};
  std::int64_t known = 1;
  int blank = 0;
  for (const auto& [name, size] : sizes) {
    known *= *size == 0 ? 1 : *size;
    blank += *size == 0 ? 1 : 0;
  }
  const std::int64_t with_dp = known * (run.dp == 0 ? 1 : run.dp);
  if (run.gpus % with_dp != 0) return "gpus are not tp x cp x pp x dp";
  const std::int64_t left = run.dp == 0 ? 1 : run.gpus / with_dp;
  if (left > 1 && blank == 0) return "gpus are not tp x cp x pp x dp";
  for (const auto& [name, size] : sizes) {
    if (*size > 0) continue;
    // With dp the numbers of ranks multiply to gpus: one blank follows from the others, several only where they are 1.
    if (run.dp > 0 && left > 1 && blank > 1) return fmt::format("no {} given, and gpus / dp leave it open", name);
    *size = left;
    if (run.dp > 0) continue;
    // Few runs divide a sequence, and rows that do say so; whether layers or products are divided is half of a layout.
    const bool is_cp = size == &run.cp;
    if (!is_cp && !run.framework.shards) return fmt::format("no {} given", name);
    assumptions.push_back(fmt::format("{} 1", name));
  }
  if (run.ep == 0 && run.has_experts) return "no ep given";
  // torchtitan's local_batch_size is cut into micro-batches of pipeline_parallel_microbatch_size.
  if (run.framework.local_batch && run.pp > 1 && run.mbs * (run.gpus / run.ranks_of_model()) == run.gbs)
    return fmt::format(
        "mbs {} is all that a rank of data parallelism has of gbs {}: torchtitan's pipelines cut their local batch "
        "into "
        "micro-batches, whose size the row does not give",
        run.mbs, run.gbs);
  return "";
}

}  // namespace stretto::validate
