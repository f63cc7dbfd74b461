#include "model/schedule/folding.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <optional>
#include <set>

#include "model/schedule/process_group.hpp"

namespace stretto {
namespace {

// Returns the period: ranks of a stage that are this many ranks apart have equal places on equal devices, and in equal
// groups of every decomposition. nullopt: there is no such number.
//
// Every axis varies a run of digits of the rank number, in the mixed radix that all strides make, if each stride
// divides the next. The period is a stride too. So a class has the ranks of equal digits at some places, and a group
// has the ranks of all digits at other places. It follows that the class of one member determines all classes of its
// group, and that the group of a representative has the representatives of these classes.
std::optional<std::int64_t> period_of(const Schedule& schedule) {
  const Mesh& mesh = schedule.mesh;
  std::set<std::int64_t> strides;
  for (const Mesh::Decomposition& decomposition : mesh.decompositions()) {
    std::int64_t stride = 1;
    for (auto axis = decomposition.rbegin(); axis != decomposition.rend(); ++axis) {
      strides.insert(stride);
      stride *= axis->size;
    }
  }
  if (mesh.decompositions().size() > 1)
    for (auto next = strides.begin(), stride = next++; next != strides.end(); stride = next++)
      if (*next % *stride != 0) return std::nullopt;
  std::int64_t period = std::min(mesh.ranks(), schedule.placement.ranks_per_device);
  if (period == 1) return period;
  const std::vector<MeshAxis>& axes = mesh.axes();
  const bool stages_are_ranges = axes.empty() || axes.front().coord == Coord::pp || mesh.size(Coord::pp) == 1;
  if (!stages_are_ranges) return std::nullopt;
  const std::int64_t stage = mesh.ranks() / mesh.size(Coord::pp);
  strides.insert(stage);
  // Devices that cut an axis at different places are equal again after a multiple of both sizes.
  for (const std::int64_t stride : strides)
    if (period % stride != 0 && stride % period != 0) period = std::lcm(period, stride);
  if (stage % period != 0) return std::nullopt;
  return period;
}

// Returns whether ranks along the axis differ in what they do.
bool differs_along(const Schedule& schedule, Coord axis) {
  // A communicator with a subset has some ranks of the axis as members and others not.
  for (const Communicator& communicator : schedule.communicators)
    if (!communicator.subset.empty() && schedule.mesh.depends_on(place_in(schedule, communicator), axis)) return true;
  for (const Operation& operation : schedule.operations) {
    for (const Access& access : operation.accesses)
      if (schedule.mesh.depends_on(access.view.layer, axis) || schedule.mesh.depends_on(access.view.slot, axis))
        return true;
    const auto* message = std::get_if<PointToPoint>(&operation.work);
    if (message && schedule.mesh.depends_on(message->offset, axis)) return true;
  }
  return false;
}

// Keeps all coordinates of rings along several axes, because such a ring goes on from the end of one axis to the next
// place on another.
void keep_rings(const Schedule& schedule, std::set<Coord>& kept) {
  std::set<std::uint32_t> with_messages;
  for (const Operation& operation : schedule.operations)
    if (const auto* message = std::get_if<PointToPoint>(&operation.work)) with_messages.insert(message->communicator);
  for (std::size_t before = 0; before < kept.size();) {
    before = kept.size();
    for (const std::uint32_t communicator : with_messages) {
      const Expr place = place_in(schedule, schedule.communicators[communicator]);
      std::set<Coord> along;
      for (const MeshAxis& axis : schedule.mesh.axes())
        if (axis.size > 1 && schedule.mesh.depends_on(place, axis.coord)) along.insert(axis.coord);
      if (std::any_of(along.begin(), along.end(), [&](Coord axis) { return kept.contains(axis); }))
        kept.insert(along.begin(), along.end());
    }
  }
}

Folding::Periods whole_axes(const Mesh& mesh) {
  Folding::Periods periods{};
  for (const MeshAxis& axis : mesh.axes()) periods[static_cast<std::size_t>(axis.coord)] = axis.size;
  return periods;
}

}  // namespace

Folding::Folding(const Mesh& mesh) : Folding(mesh, whole_axes(mesh)) {}

Folding::Folding(const Mesh& mesh, const Periods& periods) : mesh_(mesh), periods_(periods), representatives_{0} {
  for (const MeshAxis& axis : mesh_.axes()) {
    const std::int64_t period = periods_[static_cast<std::size_t>(axis.coord)];
    assert(period > 0 && axis.size % period == 0);
    std::vector<std::int64_t> extended;
    for (const std::int64_t begin : representatives_)
      for (std::int64_t c = 0; c < period; ++c) extended.push_back(begin * axis.size + c);
    representatives_ = std::move(extended);
  }
}

Folding::Folding(const Mesh& mesh, std::vector<std::uint32_t> class_of_rank)
    : mesh_(mesh), class_of_rank_(std::move(class_of_rank)) {
  assert(static_cast<std::int64_t>(class_of_rank_.size()) == mesh_.ranks());
  for (std::size_t rank = 0; rank < class_of_rank_.size(); ++rank)
    if (class_of_rank_[rank] == representatives_.size()) representatives_.push_back(static_cast<std::int64_t>(rank));
}

std::uint32_t Folding::index_of(std::int64_t rank) const {
  if (!is_by_axes()) return class_of_rank_[static_cast<std::size_t>(rank)];
  std::int64_t index = 0, stride = 1;
  for (auto axis = mesh_.axes().rbegin(); axis != mesh_.axes().rend(); ++axis) {
    const std::int64_t period = periods_[static_cast<std::size_t>(axis->coord)];
    index += rank % axis->size % period * stride;
    stride *= period;
    rank /= axis->size;
  }
  return static_cast<std::uint32_t>(index);
}

std::vector<std::int64_t> Folding::sizes() const {
  const std::size_t count = representatives_.size();
  if (is_by_axes()) return std::vector<std::int64_t>(count, mesh_.ranks() / static_cast<std::int64_t>(count));
  std::vector<std::int64_t> sizes(count);
  for (const std::uint32_t index : class_of_rank_) ++sizes[index];
  return sizes;
}

ClassCoordinates Folding::class_of(Coord axis, std::int64_t coordinate) const {
  const std::int64_t period = periods_[static_cast<std::size_t>(axis)];
  if (coordinate >= period) return {};
  return {coordinate, period, mesh_.size(axis) / period};
}

std::uint32_t Folding::lowest_in_group(const Communicator& communicator, std::int64_t rank) const {
  const ProcessGroup group = process_group_of(mesh_, communicator, rank);
  if (is_by_axes()) return index_of(group.first);
  std::uint32_t lowest = index_of(rank);
  for (std::int64_t place = 0; place < group.size; ++place)
    lowest = std::min(lowest, index_of(ring_member(mesh_, communicator, rank, place)));
  return lowest;
}

Folding fold_ranks(const Schedule& schedule) {
  const std::optional<std::int64_t> period = period_of(schedule);
  if (!period) return Folding(schedule.mesh);
  std::set<Coord> kept;
  for (const MeshAxis& axis : schedule.mesh.axes())
    if (axis.coord == Coord::pp || differs_along(schedule, axis.coord)) kept.insert(axis.coord);
  keep_rings(schedule, kept);
  Folding::Periods periods{};
  std::int64_t stride = 1;
  const std::vector<MeshAxis>& axes = schedule.mesh.axes();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const std::int64_t equal = *period <= stride ? 1 : std::min(*period / stride, axis->size);
    periods[static_cast<std::size_t>(axis->coord)] = kept.contains(axis->coord) ? axis->size : equal;
    stride *= axis->size;
  }
  return Folding(schedule.mesh, periods);
}

}  // namespace stretto
