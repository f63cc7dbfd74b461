#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/schedule/expr.hpp"

namespace stretto {

struct MeshAxis {
  Coord coord = Coord::dp;
  std::int64_t size = 1;
};

// The ranks as a Cartesian grid: rank = Σ coordinate · stride, the last axis fastest (Megatron's order is pp, dp, cp,
// tp with tp fastest). Layers that are cut differently see the same ranks as another grid: a mesh has a main
// decomposition and maybe more (of experts: pp, edp, ep, etp). Every rank has coordinates on the axes of all
// decompositions, and an axis that several decompositions have is the same in all of them. A group of ranks is named by
// axes of one decomposition.
class Mesh {
 public:
  using Decomposition = std::vector<MeshAxis>;
  Mesh() = default;
  explicit Mesh(Decomposition main) : decompositions_{std::move(main)} {}
  // As many ranks as the main decomposition; shared axes have the same size and stride.
  void add_decomposition(Decomposition decomposition);

  std::int64_t ranks() const;
  std::int64_t size(Coord axis) const;  // 1 when absent
  Coordinates coordinates_of(std::int64_t rank) const;
  std::int64_t rank_of(const Coordinates& at) const;  // by the main decomposition
  // Sets the coordinates on all other axes to those that the rank has with the coordinates of the main decomposition.
  void complete(Coordinates& at) const;
  // Ranks that agree with `rank` on every axis not in `along`, in the order of their coordinates. `along` are axes of
  // one decomposition.
  std::vector<std::int64_t> members(std::int64_t rank, const std::vector<Coord>& along) const;
  // Whether the value of an expression may change with the coordinate on an axis of the main decomposition.
  bool depends_on(const Expr& expr, Coord axis) const;

  const Decomposition& axes() const { return decompositions_.front(); }  // of the main decomposition
  const std::vector<Decomposition>& decompositions() const { return decompositions_; }
  const Decomposition& decomposition_with(const std::vector<Coord>& axes) const;  // the first that has all of them

 private:
  std::vector<Decomposition> decompositions_{Decomposition{}};
};

}  // namespace stretto
