#pragma once
#include <string>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/scenario.hpp"

namespace stretto {

// Rewrites of the plain schedule, one file each, applied in the order of the table below. Each states its edges and its
// exposed part in its file.
void rewrite_overlap_grad_reduce(Lowered& lowered);
void rewrite_overlap_param_gather(Lowered& lowered);

// One row per mode that `compare` can put beside the others.
struct OverlapMode {
  std::string name;
  std::string meaning;
  void (*configure)(Overlap& overlap);  // sets the knobs of this mode and clears those of the others
};
const std::vector<OverlapMode>& overlap_modes();
// Throws Error(input) naming the nearest mode.
const OverlapMode& find_overlap_mode(const std::string& name);
// The name of the mode whose knobs are set.
std::string mode_name(const Overlap& overlap);

// Scenario → verified-to-be schedule: lowering, then the rewrites whose knobs are on. Knobs that are on but cannot act
// (dp 1) are named in Schedule::notes.
Schedule build_schedule(const Scenario& scenario);
// The same scenario with another mode's knobs and another data-parallel size; micro-batch size and micro-batches per
// rank stay, so the global batch grows with the ranks (weak scaling).
Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t data_parallel_size);

}  // namespace stretto
