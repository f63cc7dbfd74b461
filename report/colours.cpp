#include "report/colours.hpp"

#include <algorithm>
#include <array>

namespace stretto {

std::string colour_of_communicator(std::string_view communicator) {
  static constexpr std::array kNamed = {"tp", "tp.ring", "dp", "pp.forward", "pp.backward", "cp", "embedding"};
  if (std::find(kNamed.begin(), kNamed.end(), communicator) == kNamed.end()) return "comm-other";
  std::string name = "comm-" + std::string(communicator);
  std::replace(name.begin(), name.end(), '.', '-');
  return name;
}

std::string colour_of_phase(Phase phase) {
  std::string name = std::string("phase-") + name_of(phase);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace stretto
