#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Which rank stands for which: for every axis of the mesh a map from coordinate to coordinate, made once and used by
// the binder, the verifier, the memory plan and the simulator. Ranks with one representative are a *time class*: they
// have equal orders, sizes, costs and devices, and their peers are again of one class, so they do everything at the
// same times and one of them is simulated. Where their operations lie in their buffers may differ (a shard of a bucket,
// a piece of a ring): the verifier looks at the bytes of all of them, with the clocks of the one
// (model/verify/cells.hpp).
class Folding {
 public:
  explicit Folding(const Mesh& mesh);  // every rank stands for itself

  // Ascending, without duplicates.
  const std::vector<std::int64_t>& representatives() const { return representatives_; }
  std::int64_t of(std::int64_t rank) const;
  // The place of a rank's representative among representatives().
  std::uint32_t index_of(std::int64_t rank) const;
  // Coordinates on `axis` of the ranks that a representative at `coordinate` stands for, ascending.
  std::vector<std::int64_t> class_of(Coord axis, std::int64_t coordinate) const;
  const Mesh& mesh() const { return mesh_; }

  // map[c] stands for c, and for itself; one entry for each coordinate of the axis.
  void set(Coord axis, std::vector<std::int64_t> map);

 private:
  void update();

  Mesh mesh_;
  std::array<std::vector<std::int64_t>, kCoordCount> map_;  // [axis][coordinate]; empty: no such axis
  std::vector<std::int64_t> representatives_;
};

// As few representatives as the schedule allows. pp is never folded: stages have programs of their own. Of the other
// axes, ranks stay apart
//  - that share a device in different ways (of each time class, whole devices are kept: their ranks compete for cores);
//  - whose views name another layer or slot;
//  - whose messages go another distance.
// `apart`: ranks that differ in speed from the others of their class (stragglers).
Folding fold_ranks(const Schedule& schedule, std::span<const std::int64_t> apart = {});

}  // namespace stretto
