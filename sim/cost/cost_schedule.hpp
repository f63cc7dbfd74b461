#pragma once
#include "model/framework.hpp"
#include "model/scenario.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {

// Returns the cores that the ranks of one device share: the scenario's, else the platform's.
int cores_per_device(const Platform& platform, const Cluster& cluster);

// Returns the costs of all operations of the schedule on the platform, with the scenario's links and cores.
// `core_speed` is the speed of the cores relative to calibration (sgemm now / sgemm then); 1 when it was not measured
// again. `framework` says how the ranks of a GPU platform run the schedule, and `training` which CUDA graphs they
// launch and how many rows experts get. Throws Error(input) naming the cost key that the platform file lacks.
Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed = 1,
                    const Framework& framework = {}, const Training& training = {});

// Returns the rows of the rank that gets most of them, over those that it gets when all experts have equally many.
// Ranks that share experts wait for that rank, so all get its costs, and ranks stay folded. Returns 1 when no ranks
// share experts.
double most_rows(const Schedule& schedule, const ExpertLoads& loads);

// Returns whether rows of experts are counted slot by slot; a slot has those of one rank.
bool counts_slots(const Schedule& schedule);

}  // namespace stretto::sim
