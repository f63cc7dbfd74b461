#pragma once
#include <string>
#include <vector>

#include "model/build_schedule.hpp"
#include "model/overlap/mode.hpp"
#include "model/scenario.hpp"

namespace stretto {

// Returns every overlap mode, in the order of all lists; the plain schedule is the first.
const std::vector<OverlapMode>& overlap_modes();
// Finds a mode by name. Throws Error(input) naming the nearest mode.
const OverlapMode& find_overlap_mode(const std::string& name);
// Returns the name of the mode whose knobs are set; several names are joined by "+".
std::string mode_name(const Overlap& overlap);
// Sets the knobs of one mode and clears those of all others.
void set_mode(Overlap& overlap, const OverlapMode& mode);
// Stands for a mode's name: the knobs exactly as the scenario sets them, including combinations that no mode has.
constexpr const char* kAsGiven = "scenario";
// Returns the modes that apply to the scenario's layout and that no gate refuses, the plain one first. kAsGiven is last,
// if the scenario's knobs match none of them.
std::vector<std::string> modes_of(const Scenario& scenario);
// Returns the scenario with another mode's knobs on another number of ranks: dp = ranks / (size of the other axes).
// Micro-batch size and micro-batches per rank stay, so the global batch grows with dp (weak scaling).
Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t ranks);

// Sets hardware queues, priorities and channels from the cluster's settings. It is the last rewrite, when all lanes
// exist.
void assign_streams(Schedule& schedule, const Cluster& cluster);

}  // namespace stretto
