#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// An overlap mode that modes_of() leaves out, and why: the reason of the first closed gate.
struct LeftOutMode {
  std::string mode, why;
};
// Returns them in the order of all lists: modes that a gate refuses, and those that cannot act in the layout.
std::vector<LeftOutMode> modes_left_out(const Scenario& scenario);

}  // namespace stretto
