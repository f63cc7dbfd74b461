#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// The overlap settings of a scenario with one of its knobs off.
struct WithoutKnob {
  std::string knob;
  std::vector<std::string> also_off;  // knobs that are an error without `knob`, and so are off too
  Overlap overlap;
};
// Returns one entry for each switch of [overlap] that is on in the scenario and acts there (its gates are open), in the
// order of the overlap modes. A switch that changes nothing without another knob is left out.
std::vector<WithoutKnob> without_each_knob(const Scenario& scenario);

}  // namespace stretto
