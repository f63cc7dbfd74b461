#pragma once
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {

// Cores that the ranks of one device share: the scenario's, else the platform's.
int cores_per_device(const Platform& platform, const Cluster& cluster);

// What every operation of the schedule costs on the platform, with the scenario's links and cores. `core_speed` is how
// fast the cores are relative to when the platform was measured (sgemm now over sgemm then); 1 where nobody measured it
// again. Throws Error(input) naming the cost key that the platform file lacks.
Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed = 1);

}  // namespace stretto::sim
