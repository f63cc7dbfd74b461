#pragma once
#include <string>
#include <vector>

#include "model/framework.hpp"
#include "model/schedule/schedule.hpp"
#include "predict/few_micro_batches.hpp"
#include "sim/cost/cost.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// Returns a line for each use of a prediction on a published GPU, platform.accelerator, beyond the measurements of its
// numbers:
//
//   GEMMs        of shapes outside the grid of the table: how many shapes, their share of the time of all GEMMs, and
//                how far the farthest is outside
//   collectives  within a domain, of more GPUs than any that was measured: their time alone as a share of the step
//   attention    with heads of another size than that of the rates, or more than twice as many keys; and in any case
//                where the platform has no rates of the kernel that the profile names
//   collectives  across domains, large and of more members than logs with which NCCL's model agreed within 10 %
//                (docs/platform.md), where the platform has none of its own
//   [network]    a card more than twice as fast as ConnectX-8 of 800 Gbit/s (NVIDIA's data sheet)
//
// A line needs a possible effect of 2.5 % or more on the step, about the least error of predictions: GEMMs and
// attention from a tenth of the time of all GEMMs and of all kernels, because beyond the grid 95 of 100 points are
// predicted within a quarter (docs/platform.md); groups of a domain, whose error is not known, from 2.5 % of the step.
// `costs` are those of the simulated step's schedule.
std::vector<std::string> beyond_measured(const ExtrapolatedStep& extrapolated, const sim::Costs& costs,
                                         const sim::Platform& platform, const Framework& framework);

// Returns a line where operations take far longer than any to which a calibrated machine's cost functions were fitted;
// else "". The functions are sums of products: within ten times the measured range they hold, beyond that they are
// untested.
std::string beyond_calibrated(const Schedule& schedule, const sim::Platform& platform);

}  // namespace stretto::predict
