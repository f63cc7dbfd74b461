#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/schedule/expr.hpp"

namespace stretto {

// A mixed-radix factorisation of the rank number: rank = Σ coordinate · stride, the last axis fastest (Megatron's order
// is pp, dp, cp, tp with tp fastest). A schedule may hold several meshes over the same ranks (dense and expert layers).
struct MeshAxis {
  Coord coord = Coord::dp;
  std::int64_t size = 1;
};

class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}

  std::int64_t ranks() const;
  std::int64_t size(Coord axis) const;  // 1 when absent
  Coordinates coordinates_of(std::int64_t rank) const;
  std::int64_t rank_of(const Coordinates& at) const;
  // Ranks that agree with `rank` on every axis not in `along`, in the order of their coordinates.
  std::vector<std::int64_t> members(std::int64_t rank, const std::vector<Coord>& along) const;
  const std::vector<MeshAxis>& axes() const { return axes_; }

 private:
  std::vector<MeshAxis> axes_;
};

}  // namespace stretto
