#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Colours of a page by meaning: a communicator and a phase have the same one on every page. A colour is the name of a
// class and, with "--" before it, of a variable of report/html/style.css.
std::string colour_of_communicator(std::string_view communicator);
std::string colour_of_phase(Phase phase);

}  // namespace stretto
