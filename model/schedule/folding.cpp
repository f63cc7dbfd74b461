#include "model/schedule/folding.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace stretto {
namespace {

// How many neighbours along each axis have to be kept for the sake of the devices, the last axis being the fastest:
// coordinates that far apart are at the same place of equal devices.
struct Periods {
  std::array<std::int64_t, kCoordCount> of{};
  bool is_regular = true;  // false: devices are not alike, because one is only part full or stages share one
};

Periods periods_of(const Schedule& schedule) {
  Periods periods;
  std::int64_t left = std::min(schedule.mesh.ranks(), schedule.placement.ranks_per_device);
  const bool is_alone = left == 1;
  const std::vector<MeshAxis>& axes = schedule.mesh.axes();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->coord == Coord::pp) continue;
    std::int64_t& period = periods.of[static_cast<std::size_t>(axis->coord)];
    period = axis->size % left == 0 ? left : axis->size;
    // Devices that cut the axis in different places are alike again when a multiple of both is full.
    left /= std::gcd(left, axis->size);
  }
  const bool is_slowest = axes.empty() || axes.front().coord == Coord::pp || schedule.mesh.size(Coord::pp) == 1;
  periods.is_regular = left == 1 && (is_slowest || is_alone);
  return periods;
}

// Whether ranks along the axis differ by what they do.
bool differs_along(const Schedule& schedule, Coord axis, bool has_stragglers) {
  // Some are members of a part of the axis, others are not.
  for (const Communicator& communicator : schedule.communicators)
    if (!communicator.subset.empty() && schedule.mesh.depends_on(place_in(schedule, communicator), axis)) return true;
  for (const Operation& operation : schedule.operations) {
    for (const Access& access : operation.accesses)
      if (schedule.mesh.depends_on(access.view.layer, axis) || schedule.mesh.depends_on(access.view.slot, axis))
        return true;
    if (const auto* message = std::get_if<PointToPoint>(&operation.work)) {
      if (schedule.mesh.depends_on(message->offset, axis)) return true;
      // The neighbour of a straggler has another neighbour than the rest.
      const Expr place = place_in(schedule, schedule.communicators[message->communicator]);
      if (has_stragglers && schedule.mesh.depends_on(place, axis)) return true;
    }
  }
  return false;
}

}  // namespace

std::int64_t AxisFold::of(std::int64_t coordinate) const {
  return std::binary_search(apart.begin(), apart.end(), coordinate / period) ? coordinate
                                                                             : first * period + coordinate % period;
}

std::vector<std::int64_t> AxisFold::representatives() const {
  std::vector<std::int64_t> runs = apart, all;
  runs.insert(std::lower_bound(runs.begin(), runs.end(), first), first);
  for (const std::int64_t run : runs)
    for (std::int64_t i = 0; i < period; ++i) all.push_back(run * period + i);
  return all;
}

ClassCoordinates AxisFold::class_of(std::int64_t coordinate) const {
  if (of(coordinate) != coordinate) return {};
  if (coordinate / period != first) return {coordinate, 1, 1, {}};
  ClassCoordinates all{coordinate % period, period, size / period, {}};
  for (const std::int64_t run : apart) all.without.push_back(run * period + coordinate % period);
  return all;
}

Folding::Folds Folding::no_folds(const Mesh& mesh) {
  Folds folds;
  for (const MeshAxis& axis : mesh.axes()) folds[static_cast<std::size_t>(axis.coord)] = AxisFold::none(axis.size);
  return folds;
}

Folding::Folding(const Mesh& mesh) : Folding(mesh, no_folds(mesh)) {}

Folding::Folding(const Mesh& mesh, Folds folds) : mesh_(mesh), folds_(std::move(folds)), representatives_{0} {
  for (const MeshAxis& axis : mesh_.axes()) {
    const AxisFold& fold = folds_[static_cast<std::size_t>(axis.coord)];
    assert(fold.size == axis.size && fold.size % fold.period == 0);
    const std::vector<std::int64_t> kept = fold.representatives();
    std::vector<std::int64_t> extended;
    for (const std::int64_t begin : representatives_)
      for (const std::int64_t c : kept) extended.push_back(begin * axis.size + c);
    representatives_ = std::move(extended);
  }
}

std::int64_t Folding::of(std::int64_t rank) const {
  Coordinates at = mesh_.coordinates_of(rank);
  for (const MeshAxis& axis : mesh_.axes())
    at[axis.coord] = folds_[static_cast<std::size_t>(axis.coord)].of(at[axis.coord]);
  return mesh_.rank_of(at);
}

std::uint32_t Folding::index_of(std::int64_t rank) const {
  const auto found = std::lower_bound(representatives_.begin(), representatives_.end(), of(rank));
  return static_cast<std::uint32_t>(found - representatives_.begin());
}

ClassCoordinates Folding::class_of(Coord axis, std::int64_t coordinate) const {
  return folds_[static_cast<std::size_t>(axis)].class_of(coordinate);
}

Folding fold_ranks(const Schedule& schedule, std::span<const std::int64_t> apart) {
  const Periods periods = periods_of(schedule);
  if (!periods.is_regular) return Folding(schedule.mesh);
  // Devices and the neighbours of stragglers are looked for in the main view alone.
  if (schedule.mesh.decompositions().size() > 1 && (!apart.empty() || schedule.placement.ranks_per_device > 1))
    return Folding(schedule.mesh);
  Folding::Folds folds = Folding::no_folds(schedule.mesh);
  for (const MeshAxis& axis : schedule.mesh.axes()) {
    if (axis.coord == Coord::pp || differs_along(schedule, axis.coord, !apart.empty())) continue;
    // Devices repeat along the axis with the period. The first one without a straggler stands for the others.
    const std::int64_t period = periods.of[static_cast<std::size_t>(axis.coord)];
    AxisFold fold{axis.size, period, 0, {}};
    for (const std::int64_t rank : apart) fold.apart.push_back(schedule.mesh.coordinates_of(rank)[axis.coord] / period);
    std::sort(fold.apart.begin(), fold.apart.end());
    fold.apart.erase(std::unique(fold.apart.begin(), fold.apart.end()), fold.apart.end());
    while (fold.first < std::ssize(fold.apart) && fold.apart[static_cast<std::size_t>(fold.first)] == fold.first)
      ++fold.first;
    if (fold.first == axis.size / period) continue;  // every one is apart
    folds[static_cast<std::size_t>(axis.coord)] = std::move(fold);
  }
  return Folding(schedule.mesh, std::move(folds));
}

}  // namespace stretto
