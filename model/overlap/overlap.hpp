#pragma once
#include <string>
#include <vector>

#include "model/build_schedule.hpp"
#include "model/overlap/mode.hpp"
#include "model/scenario.hpp"

namespace stretto {

// Every overlap mode, in the order of all lists of them; the plain schedule is the first.
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
// The same scenario with another mode's knobs on another number of ranks: data parallelism takes what the other axes
// leave. Micro-batch size and micro-batches per rank stay, so the global batch grows with it (weak scaling).
Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t ranks);

// Last of all, when every lane is there: hardware queues, priorities and channels as the cluster says.
void assign_streams(Schedule& schedule, const Cluster& cluster);

}  // namespace stretto
