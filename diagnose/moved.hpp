#pragma once
#include <vector>

#include "diagnose/gap.hpp"

namespace stretto::diagnose {

// Joins the gaps of kernels outside the schedule with those of operations without kernels, where both are of one kind
// and take about as long: the run has that work in another place of the step. One gap stands for each kind; the sum
// stays. `rank` is the one whose gaps they are.
void join_moved(const Schedule& schedule, const MeasuredRank& rank, std::vector<Gap>& gaps);

}  // namespace stretto::diagnose
