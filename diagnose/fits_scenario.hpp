#pragma once
#include <string>
#include <vector>

#include "diagnose/measured.hpp"

namespace stretto::diagnose {

// Returns the share of the kernels' time in the diagnosed steps that belongs to operations of the schedule.
double matched_share(const std::vector<MeasuredRank>& ranks);

// Throws Error(input) that names what disagrees when the traces are not of this scenario:
// - less than half of the kernels' time is matched;
// - of a whole step, it is three times as long as predicted or a third, or less than half of the predicted computation
//   or less than a quarter of its operations has kernels;
// - of an excerpt, it has fewer than half of the products and attentions of a layer's forward or backward pass;
// - most products whose shape or type the trace says have another one.
void require_fit(const Schedule& schedule, const std::vector<MeasuredRank>& ranks, double matched,
                 const std::string& scenario);

}  // namespace stretto::diagnose
