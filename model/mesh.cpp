#include "model/mesh.hpp"

#include <algorithm>
#include <cassert>

namespace stretto {
namespace {

bool has(const Mesh::View& view, Coord coord) {
  return std::any_of(view.begin(), view.end(), [&](const MeshAxis& axis) { return axis.coord == coord; });
}

std::int64_t ranks_of(const Mesh::View& view) {
  std::int64_t product = 1;
  for (const MeshAxis& axis : view) product *= axis.size;
  return product;
}

void decode(const Mesh::View& view, std::int64_t rank, Coordinates& at) {
  for (auto axis = view.rbegin(); axis != view.rend(); ++axis) {
    at[axis->coord] = rank % axis->size;
    rank /= axis->size;
  }
}

std::int64_t encode(const Mesh::View& view, const Coordinates& at) {
  std::int64_t rank = 0;
  for (const MeshAxis& axis : view) rank = rank * axis.size + at[axis.coord];
  return rank;
}

}  // namespace

void Mesh::add_view(View view) {
  assert(ranks_of(view) == ranks());
  views_.push_back(std::move(view));
}

std::int64_t Mesh::ranks() const { return ranks_of(axes()); }

std::int64_t Mesh::size(Coord coord) const {
  for (const View& view : views_)
    for (const MeshAxis& axis : view)
      if (axis.coord == coord) return axis.size;
  return 1;
}

Coordinates Mesh::coordinates_of(std::int64_t rank) const {
  assert(rank >= 0 && rank < ranks());
  Coordinates at;
  for (const View& view : views_) decode(view, rank, at);
  return at;
}

std::int64_t Mesh::rank_of(const Coordinates& at) const { return encode(axes(), at); }

void Mesh::complete(Coordinates& at) const {
  for (std::size_t v = 1; v < views_.size(); ++v) decode(views_[v], rank_of(at), at);
}

const Mesh::View& Mesh::view_with(const std::vector<Coord>& wanted) const {
  for (const View& view : views_)
    if (std::all_of(wanted.begin(), wanted.end(), [&](Coord coord) { return has(view, coord); })) return view;
  return axes();  // what is absent has size 1
}

std::vector<std::int64_t> Mesh::members(std::int64_t rank, const std::vector<Coord>& along) const {
  const View& view = view_with(along);
  std::vector<std::int64_t> result = {rank};
  // Axes in mesh order, so that the members come out in the order of their rank numbers.
  for (const MeshAxis& axis : view) {
    if (std::find(along.begin(), along.end(), axis.coord) == along.end()) continue;
    std::vector<std::int64_t> extended;
    extended.reserve(result.size() * axis.size);
    for (const std::int64_t member : result) {
      Coordinates at;
      decode(view, member, at);
      for (std::int64_t i = 0; i < axis.size; ++i) {
        at[axis.coord] = i;
        extended.push_back(encode(view, at));
      }
    }
    result = std::move(extended);
  }
  return result;
}

bool Mesh::depends_on(const Expr& expr, Coord axis) const {
  if (expr.depends_on(axis)) return true;
  for (std::size_t v = 1; v < views_.size(); ++v)
    if (!has(views_[v], axis))
      for (const MeshAxis& other : views_[v])
        if (!has(axes(), other.coord) && expr.depends_on(other.coord)) return true;
  return false;
}

}  // namespace stretto
