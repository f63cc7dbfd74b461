#pragma once
#include <string>
#include <vector>

#include "diagnose/measured.hpp"

namespace stretto::diagnose {

// Returns the share of the kernels' time in the diagnosed steps that belongs to operations of the schedule.
double matched_share(const std::vector<MeasuredRank>& ranks);

// Throws Error(input) when the traces are not of this scenario: less than half of the kernels' time is matched; or of
// the predicted computation, in a whole step; or most products whose shape the trace says have another one.
void require_fit(const Schedule& schedule, const std::vector<MeasuredRank>& ranks, double matched,
                 const std::string& scenario);

}  // namespace stretto::diagnose
