#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// A class along one axis: the coordinates `begin`, `begin` + `step`, …, `places` of them, without stragglers. Its size
// in memory does not depend on how many there are.
struct ClassCoordinates {
  std::int64_t begin = 0, step = 1, places = 0;
  std::vector<std::int64_t> without;  // ascending

  std::int64_t last() const { return begin + (places - 1) * step; }  // which may be one of `without`
  std::int64_t size() const { return places - static_cast<std::int64_t>(without.size()); }
  // Calls visit(coordinate) for each, ascending.
  template <class Visit>
  void visit(const Visit& visit) const {
    auto left_out = without.begin();
    for (std::int64_t place = 0; place < places; ++place) {
      const std::int64_t coordinate = begin + place * step;
      if (left_out != without.end() && *left_out == coordinate)
        ++left_out;
      else
        visit(coordinate);
    }
  }
};

// Which coordinates of an axis stand for which. Runs of `period` coordinates are alike (the ranks of a device, or 1),
// and run number `first` stands for all but those of `apart`, which stand for themselves.
struct AxisFold {
  std::int64_t size = 1, period = 1, first = 0;
  std::vector<std::int64_t> apart;  // runs, ascending

  std::int64_t of(std::int64_t coordinate) const;
  std::vector<std::int64_t> representatives() const;         // ascending
  ClassCoordinates class_of(std::int64_t coordinate) const;  // of none but a representative is it not empty
  static AxisFold none(std::int64_t size) { return {size, size, 0, {}}; }  // each stands for itself
};

// Which rank represents which, along every axis of the mesh, in memory that does not depend on how many there are. It
// is made once; binder, verifier, memory plan and simulator use it. Ranks with one representative are a *time class*:
// they have equal orders, sizes, costs and devices, and their peers are again of one class. So they do everything at
// the same time, and one of them is simulated. They may work on different bytes of their buffers (a shard of a bucket,
// a piece of a ring): the verifier checks the bytes of all of them with the clocks of the representative
// (model/verify/cells.hpp).
class Folding {
 public:
  using Folds = std::array<AxisFold, kCoordCount>;
  explicit Folding(const Mesh& mesh);  // every rank represents itself
  Folding(const Mesh& mesh, Folds folds);
  static Folds no_folds(const Mesh& mesh);

  // Ascending, without duplicates.
  const std::vector<std::int64_t>& representatives() const { return representatives_; }
  std::int64_t of(std::int64_t rank) const;
  // Index of the rank's representative in representatives().
  std::uint32_t index_of(std::int64_t rank) const;
  // Coordinates on `axis` of the ranks that a representative at `coordinate` represents, ascending.
  ClassCoordinates class_of(Coord axis, std::int64_t coordinate) const;
  const Mesh& mesh() const { return mesh_; }

 private:
  Mesh mesh_;
  Folds folds_;  // [axis] of the mesh
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
