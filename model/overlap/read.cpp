#include "model/overlap/overlap.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

// NeMo names the type, Megatron-LM has a switch for the same.
bool read_grad_reduce_in_fp32(TomlTable& table) {
  const bool is_fp32 = value_or<bool>(table, "grad_reduce_in_fp32", true);
  if (!table.has("grad_sync_dtype")) return is_fp32;
  if (table.has("grad_reduce_in_fp32"))
    throw table.failure("grad_sync_dtype",
                        "expected only one of grad_reduce_in_fp32 and grad_sync_dtype (the same setting), got both");
  return choice_or(table, "grad_sync_dtype", "fp32", {"fp32", "bf16"}) == "fp32";
}

}  // namespace

Overlap read_overlap(TomlTable table, const Parallel& parallel) {
  Overlap overlap;
  overlap.cp_comm_overlap = parallel.has_cp_ring();  // as the frameworks, which have no switch for it
  for (const OverlapMode& mode : overlap_modes()) {
    if (mode.name == mode.knob) overlap.*mode.on = value_or<bool>(table, mode.knob, overlap.*mode.on);
    if (mode.read) mode.read(table, overlap);
  }
  overlap.grad_reduce_in_fp32 = read_grad_reduce_in_fp32(table);
  overlap.defer_embedding_wgrad_compute = value_or<bool>(table, "defer_embedding_wgrad_compute", false);
  overlap.wgrad_deferral_limit =
      value_or<std::int64_t>(table, "wgrad_deferral_limit", 0, {.min = 0, .max = kMaxGlobalBatch});
  table.finish();
  for (const OverlapMode& mode : overlap_modes())
    if (mode.check) mode.check(table, overlap);
  return overlap;
}

}  // namespace stretto
