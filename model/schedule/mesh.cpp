#include "model/schedule/mesh.hpp"

#include <algorithm>
#include <cassert>

namespace stretto {
namespace {

bool has(const Mesh::Decomposition& decomposition, Coord coord) {
  return std::any_of(decomposition.begin(), decomposition.end(),
                     [&](const MeshAxis& axis) { return axis.coord == coord; });
}

std::int64_t ranks_of(const Mesh::Decomposition& decomposition) {
  std::int64_t product = 1;
  for (const MeshAxis& axis : decomposition) product *= axis.size;
  return product;
}

void decode(const Mesh::Decomposition& decomposition, std::int64_t rank, Coordinates& at) {
  for (auto axis = decomposition.rbegin(); axis != decomposition.rend(); ++axis) {
    at[axis->coord] = rank % axis->size;
    rank /= axis->size;
  }
}

std::int64_t encode(const Mesh::Decomposition& decomposition, const Coordinates& at) {
  std::int64_t rank = 0;
  for (const MeshAxis& axis : decomposition) rank = rank * axis.size + at[axis.coord];
  return rank;
}

}  // namespace

void Mesh::add_decomposition(Decomposition decomposition) {
  assert(ranks_of(decomposition) == ranks());
  decompositions_.push_back(std::move(decomposition));
}

std::int64_t Mesh::ranks() const { return ranks_of(axes()); }

std::int64_t Mesh::size(Coord coord) const {
  for (const Decomposition& decomposition : decompositions_)
    for (const MeshAxis& axis : decomposition)
      if (axis.coord == coord) return axis.size;
  return 1;
}

Coordinates Mesh::coordinates_of(std::int64_t rank) const {
  assert(rank >= 0 && rank < ranks());
  Coordinates at;
  for (const Decomposition& decomposition : decompositions_) decode(decomposition, rank, at);
  return at;
}

std::int64_t Mesh::rank_of(const Coordinates& at) const { return encode(axes(), at); }

void Mesh::complete(Coordinates& at) const {
  for (std::size_t v = 1; v < decompositions_.size(); ++v) decode(decompositions_[v], rank_of(at), at);
}

const Mesh::Decomposition& Mesh::decomposition_with(const std::vector<Coord>& wanted) const {
  for (const Decomposition& decomposition : decompositions_)
    if (std::all_of(wanted.begin(), wanted.end(), [&](Coord coord) { return has(decomposition, coord); }))
      return decomposition;
  return axes();  // an axis that is absent has size 1
}

std::vector<std::int64_t> Mesh::members(std::int64_t rank, const std::vector<Coord>& along) const {
  const Decomposition& decomposition = decomposition_with(along);
  std::vector<std::int64_t> result = {rank};
  // The loop follows the axes in mesh order, so that the members come out in the order of their rank numbers.
  for (const MeshAxis& axis : decomposition) {
    if (std::find(along.begin(), along.end(), axis.coord) == along.end()) continue;
    std::vector<std::int64_t> extended;
    extended.reserve(result.size() * axis.size);
    for (const std::int64_t member : result) {
      Coordinates at;
      decode(decomposition, member, at);
      for (std::int64_t i = 0; i < axis.size; ++i) {
        at[axis.coord] = i;
        extended.push_back(encode(decomposition, at));
      }
    }
    result = std::move(extended);
  }
  return result;
}

bool Mesh::depends_on(const Expr& expr, Coord axis) const {
  if (expr.depends_on(axis)) return true;
  for (std::size_t v = 1; v < decompositions_.size(); ++v)
    if (!has(decompositions_[v], axis))
      for (const MeshAxis& other : decompositions_[v])
        if (!has(axes(), other.coord) && expr.depends_on(other.coord)) return true;
  return false;
}

}  // namespace stretto
