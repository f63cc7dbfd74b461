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

Folding::Folding(const Mesh& mesh) : mesh_(mesh) {
  for (const MeshAxis& axis : mesh.axes()) {
    std::vector<std::int64_t>& map = map_[static_cast<std::size_t>(axis.coord)];
    map.resize(static_cast<std::size_t>(axis.size));
    std::iota(map.begin(), map.end(), 0);
  }
  update();
}

void Folding::set(Coord axis, std::vector<std::int64_t> map) {
  assert(static_cast<std::int64_t>(map.size()) == mesh_.size(axis));
  for (const std::int64_t to : map)
    assert(map[static_cast<std::size_t>(to)] == to && "a representative stands for itself");
  map_[static_cast<std::size_t>(axis)] = std::move(map);
  update();
}

void Folding::update() {
  representatives_ = {0};
  for (const MeshAxis& axis : mesh_.axes()) {
    std::vector<std::int64_t> extended;
    const std::vector<std::int64_t>& map = map_[static_cast<std::size_t>(axis.coord)];
    for (const std::int64_t begin : representatives_)
      for (std::int64_t c = 0; c < axis.size; ++c)
        if (map[static_cast<std::size_t>(c)] == c) extended.push_back(begin * axis.size + c);
    representatives_ = std::move(extended);
  }
}

std::int64_t Folding::of(std::int64_t rank) const {
  Coordinates at = mesh_.coordinates_of(rank);
  for (const MeshAxis& axis : mesh_.axes())
    at[axis.coord] = map_[static_cast<std::size_t>(axis.coord)][static_cast<std::size_t>(at[axis.coord])];
  return mesh_.rank_of(at);
}

std::uint32_t Folding::index_of(std::int64_t rank) const {
  const auto found = std::lower_bound(representatives_.begin(), representatives_.end(), of(rank));
  return static_cast<std::uint32_t>(found - representatives_.begin());
}

std::vector<std::int64_t> Folding::class_of(Coord axis, std::int64_t coordinate) const {
  std::vector<std::int64_t> members;
  const std::vector<std::int64_t>& map = map_[static_cast<std::size_t>(axis)];
  for (std::size_t c = 0; c < map.size(); ++c)
    if (map[c] == coordinate) members.push_back(static_cast<std::int64_t>(c));
  return members;
}

Folding fold_ranks(const Schedule& schedule, std::span<const std::int64_t> apart) {
  Folding folding(schedule.mesh);
  const Periods periods = periods_of(schedule);
  if (!periods.is_regular) return folding;
  // Devices and the neighbours of stragglers are looked for in the main view alone.
  if (schedule.mesh.decompositions().size() > 1 && (!apart.empty() || schedule.placement.ranks_per_device > 1))
    return folding;
  for (const MeshAxis& axis : schedule.mesh.axes()) {
    if (axis.coord == Coord::pp || differs_along(schedule, axis.coord, !apart.empty())) continue;
    // Devices repeat along the axis with the period. The first one without a straggler stands for the others.
    const std::int64_t period = periods.of[static_cast<std::size_t>(axis.coord)];
    std::vector<bool> is_apart(static_cast<std::size_t>(axis.size / period), false);
    for (const std::int64_t rank : apart)
      is_apart[static_cast<std::size_t>(schedule.mesh.coordinates_of(rank)[axis.coord] / period)] = true;
    const std::int64_t first = std::find(is_apart.begin(), is_apart.end(), false) - is_apart.begin();
    std::vector<std::int64_t> map;
    for (std::int64_t c = 0; c < axis.size; ++c) {
      const std::int64_t device = c / period;
      map.push_back((is_apart[static_cast<std::size_t>(device)] ? device : first) * period + c % period);
    }
    folding.set(axis.coord, std::move(map));
  }
  return folding;
}

}  // namespace stretto
