#pragma once
#include <string>

#include "diagnose/gap.hpp"

namespace stretto::diagnose {

// Returns what to try against a gap; "" for gaps that cost nothing. A run on the cores of a host has neither clocks of
// a GPU nor flags of a framework: `on_gpu`.
std::string advice_for(const Gap& gap, const Schedule& schedule, bool on_gpu);

}  // namespace stretto::diagnose
