#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Colours of a page by meaning: every communicator, every phase and every part of a step has one of its own, which is
// the same in strips, bars, lanes and legends of every page. A colour is the name of a class of the page's style and,
// with "--" before it, of a variable.
struct Colour {
  std::string name;
  std::string light, dark;  // "#2a78d6": on a light and on a dark page
};
// All colours that mean something. No two are alike.
const std::vector<Colour>& palette();
// Their variables and classes, as CSS.
std::string palette_css();

// "comm-tp". Communicators of unknown names share "comm-other".
std::string colour_of_communicator(std::string_view communicator);
// "phase-forward".
std::string colour_of_phase(Phase phase);

}  // namespace stretto
