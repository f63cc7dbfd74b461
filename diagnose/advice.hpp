#pragma once
#include <string>

#include "diagnose/gap.hpp"

namespace stretto::diagnose {

// Returns what to try against a gap; "" for gaps that cost nothing.
std::string advice_for(const Gap& gap, const Schedule& schedule);

}  // namespace stretto::diagnose
