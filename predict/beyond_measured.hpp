#pragma once
#include <string>
#include <vector>

#include "model/framework.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// What a prediction on a published GPU, platform.accelerator, takes from beyond what its numbers were measured with, a
// line each:
//
//   GEMMs        of shapes outside the grid of the table: how many shapes, their share of the time of all GEMMs, and
//                how far the farthest is outside
//   collectives  within a domain, of more GPUs than any that was measured: what they take alone, as a share of the step
//   attention    with heads of another size than that of the rates, or more than twice as many keys; and in any case
//                where the platform has no rates of the kernel that the profile names
//   collectives  across domains, large and of more members than logs that NCCL's model was held against within 10 %
//                (docs/platform.md), where the platform has none of its own
//   [network]    a card more than twice as fast as ConnectX-8 of 800 Gbit/s (NVIDIA's data sheet)
//
// Said is what could change the step by 2.5 % or more, about the least that predictions err by: GEMMs and attention
// from a tenth of the time of all GEMMs and of all kernels, as beyond the grid 95 of 100 points are predicted within a
// quarter (docs/platform.md); groups of a domain, whose error is not known, from 2.5 % of the step.
std::vector<std::string> beyond_measured(const Schedule& schedule, const sim::SimResult& result,
                                         const sim::Costs& costs, const sim::Platform& platform,
                                         const Framework& framework);

// A line where operations take far longer than any that a calibrated machine's cost functions were fitted to; else "".
// These are sums of products: within ten times of what was measured they hold, farther off nobody has looked.
std::string beyond_calibrated(const Schedule& schedule, const sim::Platform& platform);

}  // namespace stretto::predict
