#include "model/schedule/gradient_reduction.hpp"

#include <algorithm>

namespace stretto {

bool reduces_gradients(const Schedule& schedule, const Operation& operation) {
  const auto* collective = std::get_if<Collective>(&operation.work);
  if (collective == nullptr || operation.phase != Phase::grad_sync) return false;
  const std::vector<Coord>& axes = schedule.communicators[collective->communicator].axes;
  return std::any_of(axes.begin(), axes.end(),
                     [](Coord axis) { return axis == Coord::dp || axis == Coord::cp || axis == Coord::edp; });
}

}  // namespace stretto
