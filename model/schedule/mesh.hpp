#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/ops/expr.hpp"

namespace stretto {

struct MeshAxis {
  Coord coord = Coord::dp;
  std::int64_t size = 1;
};

// The ranks as a Cartesian grid: rank = Σ coordinate · stride, the last axis fastest (Megatron's order is pp, dp, cp,
// tp with tp fastest). A mesh has a main decomposition and maybe further ones, for layers that are cut differently
// (experts: pp, edp, ep, etp). Every rank has coordinates on the axes of all decompositions, and an axis in several
// decompositions is equal in all of them. Axes of one decomposition name a group of ranks.
class Mesh {
 public:
  using Decomposition = std::vector<MeshAxis>;
  Mesh() = default;
  explicit Mesh(Decomposition main) : decompositions_{std::move(main)} {}
  // Adds a decomposition with as many ranks as the main one; shared axes must have equal size and stride.
  void add_decomposition(Decomposition decomposition);

  std::int64_t ranks() const;
  std::int64_t size(Coord axis) const;  // 1 when the axis is absent
  Coordinates coordinates_of(std::int64_t rank) const;
  std::int64_t rank_of(const Coordinates& at) const;  // uses the coordinates of the main decomposition
  // Sets the coordinates on all other axes to those of the rank that the main decomposition's coordinates name.
  void complete(Coordinates& at) const;
  // Returns the ranks that agree with `rank` on every axis outside `along`, in the order of their coordinates. `along`
  // are axes of one decomposition.
  std::vector<std::int64_t> members(std::int64_t rank, const std::vector<Coord>& along) const;
  // Returns whether the value of an expression may change with the coordinate on an axis of the main decomposition.
  bool depends_on(const Expr& expr, Coord axis) const;

  const Decomposition& axes() const { return decompositions_.front(); }  // the axes of the main decomposition
  const std::vector<Decomposition>& decompositions() const { return decompositions_; }
  // the first decomposition that has all the axes
  const Decomposition& decomposition_with(const std::vector<Coord>& axes) const;

 private:
  std::vector<Decomposition> decompositions_{Decomposition{}};
};

}  // namespace stretto
