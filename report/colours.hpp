#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Colours of a page by meaning: every communicator, every phase and every part of a step has a colour of its own, in
// strips, bars, lanes and legends of every page. A colour is the name of a class of the page's style and, with "--"
// before it, of a variable.
struct Colour {
  std::string name;
  std::string light, dark;  // "#2a78d6": colours for a light and for a dark page
};
// Returns all colours with a meaning. No two are equal.
const std::vector<Colour>& palette();
// Returns the variables and classes of all colours as CSS.
std::string palette_css();

// Returns "comm-tp". Communicators of unknown names share "comm-other".
std::string colour_of_communicator(std::string_view communicator);
// Returns "dispatch" or "combine": rows of experts on their way to the experts, and back.
std::string colour_of_exchange(CollectiveKind kind);
// Returns "phase-forward".
std::string colour_of_phase(Phase phase);

}  // namespace stretto
