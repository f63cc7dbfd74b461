#include "model/overlap/overlap.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

// NeMo names the type; Megatron-LM has a switch for it.
void read_grad_sync_dtype(TomlTable& table, Overlap& overlap) {
  if (!table.has("grad_sync_dtype")) return;
  if (table.has("grad_reduce_in_fp32"))
    throw table.failure("grad_sync_dtype",
                        "expected only one of grad_reduce_in_fp32 and grad_sync_dtype (the same setting), got both");
  overlap.grad_reduce_in_fp32 = choice_or(table, "grad_sync_dtype", "fp32", {"fp32", "bf16"}) == "fp32";
}

}  // namespace

Overlap read_overlap(TomlTable table, const Parallel& parallel) {
  Scenario scenario;
  Overlap& overlap = scenario.overlap;
  overlap.cp_comm_overlap = parallel.has_cp_ring();  // as in the frameworks, which have no switch for it
  KeyReader(table, "overlap", scenario).read_others();
  for (const OverlapMode& mode : overlap_modes())
    if (mode.read) mode.read(table, overlap);
  read_grad_sync_dtype(table, overlap);
  table.finish();
  for (const OverlapMode& mode : overlap_modes())
    if (mode.check) mode.check(table, overlap);
  return overlap;
}

}  // namespace stretto
