#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Which rank represents which: a map from coordinate to coordinate for every axis of the mesh. It is made once; binder,
// verifier, memory plan and simulator use it. Ranks with one representative are a *time class*: they have equal orders,
// sizes, costs and devices, and their peers are again of one class. So they do everything at the same time, and one of
// them is simulated. They may work on different bytes of their buffers (a shard of a bucket, a piece of a ring): the
// verifier checks the bytes of all of them with the clocks of the representative (model/verify/cells.hpp).
class Folding {
 public:
  explicit Folding(const Mesh& mesh);  // every rank represents itself

  // Ascending, without duplicates.
  const std::vector<std::int64_t>& representatives() const { return representatives_; }
  std::int64_t of(std::int64_t rank) const;
  // Index of the rank's representative in representatives().
  std::uint32_t index_of(std::int64_t rank) const;
  // Coordinates on `axis` of the ranks that a representative at `coordinate` represents, ascending.
  std::vector<std::int64_t> class_of(Coord axis, std::int64_t coordinate) const;
  const Mesh& mesh() const { return mesh_; }

  // Coordinate map[c] represents coordinate c; map[map[c]] = map[c]. One entry for each coordinate of the axis.
  void set(Coord axis, std::vector<std::int64_t> map);

 private:
  void update();

  Mesh mesh_;
  std::array<std::vector<std::int64_t>, kCoordCount> map_;  // [axis][coordinate]; empty: no such axis
  std::vector<std::int64_t> representatives_;
};

// As few representatives as the schedule allows. pp is never folded: each stage has its own program. On the other axes,
// two ranks are not folded together when
//  - they share a device in different ways (whole devices are kept of each class: their ranks compete for cores);
//  - their views name different layers or slots;
//  - their messages go different distances.
// `apart`: stragglers, which represent only themselves.
Folding fold_ranks(const Schedule& schedule, std::span<const std::int64_t> apart = {});

}  // namespace stretto
