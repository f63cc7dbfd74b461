#include "model/mesh.hpp"

#include <algorithm>
#include <cassert>

namespace stretto {

std::int64_t Mesh::ranks() const {
  std::int64_t product = 1;
  for (const MeshAxis& axis : axes_) product *= axis.size;
  return product;
}

std::int64_t Mesh::size(Coord coord) const {
  for (const MeshAxis& axis : axes_)
    if (axis.coord == coord) return axis.size;
  return 1;
}

Coordinates Mesh::coordinates_of(std::int64_t rank) const {
  assert(rank >= 0 && rank < ranks());
  Coordinates at;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    at[axis->coord] = rank % axis->size;
    rank /= axis->size;
  }
  return at;
}

std::int64_t Mesh::rank_of(const Coordinates& at) const {
  std::int64_t rank = 0;
  for (const MeshAxis& axis : axes_) rank = rank * axis.size + at[axis.coord];
  return rank;
}

std::vector<std::int64_t> Mesh::members(std::int64_t rank, const std::vector<Coord>& along) const {
  std::vector<std::int64_t> result = {rank};
  // Axes in mesh order, so that the members come out in the order of their rank numbers.
  for (const MeshAxis& axis : axes_) {
    if (std::find(along.begin(), along.end(), axis.coord) == along.end()) continue;
    std::vector<std::int64_t> extended;
    extended.reserve(result.size() * axis.size);
    for (const std::int64_t member : result) {
      Coordinates at = coordinates_of(member);
      for (std::int64_t i = 0; i < axis.size; ++i) {
        at[axis.coord] = i;
        extended.push_back(rank_of(at));
      }
    }
    result = std::move(extended);
  }
  return result;
}

}  // namespace stretto
