#pragma once
#include <string>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/overlap/tp_methods.hpp"
#include "model/scenario.hpp"

namespace stretto {

// Rewrites of the plain schedule, one file each, applied in the order of the table below. Each states its edges and its
// exposed part in its file.
void rewrite_overlap_grad_reduce(Lowered& lowered);
void rewrite_overlap_param_gather(Lowered& lowered, bool align);
void rewrite_async_allreduce(Lowered& lowered);
// `compute_lanes` that the pieces of a cut GEMM take turns on.
void rewrite_tp_comm_overlap(Lowered& lowered, const TpMethods& methods, std::int64_t compute_lanes);
// Last of all, when every lane is there: hardware queues, priorities and channels as the cluster says.
void assign_streams(Schedule& schedule, const Cluster& cluster);

// One row per mode that `compare` can put beside the others.
struct OverlapMode {
  std::string name;
  std::string meaning;
  void (*configure)(Overlap& overlap);        // sets the knobs of this mode; those of all modes are off before
  bool (*applies)(const Parallel& parallel);  // false: in this layout the knobs cannot act
};
const std::vector<OverlapMode>& overlap_modes();
// Throws Error(input) naming the nearest mode.
const OverlapMode& find_overlap_mode(const std::string& name);
// The name of the mode whose knobs are set; of several joined by "+".
std::string mode_name(const Overlap& overlap);
// Sets the knobs of one mode and clears those of all others.
void set_mode(Overlap& overlap, const OverlapMode& mode);
// Names, as those of the table, the knobs as the scenario has them: several modes together, and what no mode sets.
constexpr const char* kAsGiven = "scenario";
// Those that apply to the scenario's layout, the plain one first, and kAsGiven last where its knobs are none of them.
std::vector<std::string> modes_of(const Scenario& scenario);

// Scenario → verified-to-be schedule: lowering, then the rewrites whose knobs are on. Knobs that are on but cannot act
// (dp 1) are named in Schedule::notes.
Schedule build_schedule(const Scenario& scenario);
// The same scenario with another mode's knobs on another number of ranks: data parallelism takes what the other axes
// leave. Micro-batch size and micro-batches per rank stay, so the global batch grows with it (weak scaling).
Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t ranks);

}  // namespace stretto
