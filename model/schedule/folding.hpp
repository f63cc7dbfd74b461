#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// A class along one axis: `places` coordinates `begin`, `begin` + `step`, …. Its size in memory does not depend on
// `places`.
struct ClassCoordinates {
  std::int64_t begin = 0, step = 1, places = 0;
  std::int64_t last() const { return begin + (places - 1) * step; }
  // Calls visit(coordinate) for each coordinate, ascending.
  template <class Visit>
  void visit(const Visit& visit) const {
    for (std::int64_t place = 0; place < places; ++place) visit(begin + place * step);
  }
};

// The map from ranks to their representatives. Ranks with one representative are a *time class*: they have equal
// orders, sizes, costs and devices, and their peers are again of one class. So they do everything at the same time, and
// only one of them is simulated. Ranks of a class may work on different bytes of their buffers (a shard of a bucket, a
// step of a ring): the verifier checks the bytes of all of them with the clocks of the representative
// (model/verify/cells.hpp).
//
// fold_ranks() makes a folding from the schedule alone: on every axis of the main decomposition a coordinate stands for
// all coordinates that are equal to it modulo a period, in memory that does not depend on their number. split_by_kind()
// makes a finer folding, with the class of every rank.
class Folding {
 public:
  using Periods = std::array<std::int64_t, kCoordCount>;
  Folding() = default;                 // a folding of no ranks
  explicit Folding(const Mesh& mesh);  // every rank represents itself
  Folding(const Mesh& mesh, const Periods& periods);
  // `class_of_rank` is [rank]. Classes are numbered in the order of their first ranks, which represent them.
  Folding(const Mesh& mesh, std::vector<std::uint32_t> class_of_rank);

  // Returns the first rank of every class, ascending.
  const std::vector<std::int64_t>& representatives() const { return representatives_; }
  std::int64_t of(std::int64_t rank) const { return representatives_[index_of(rank)]; }
  // Returns the index of the rank's representative in representatives().
  std::uint32_t index_of(std::int64_t rank) const;
  // Returns the number of ranks of each class, by index.
  std::vector<std::int64_t> sizes() const;
  // Returns whether classes are products of ClassCoordinates, one for each axis.
  bool is_by_axes() const { return class_of_rank_.empty(); }
  // For a folding by axes: returns the coordinates on `axis` of the ranks that a representative at `coordinate`
  // represents, ascending; none when no representative is there.
  ClassCoordinates class_of(Coord axis, std::int64_t coordinate) const;
  // Returns the lowest index of a member of the communicator's group that `rank` is in. The index names the group: all
  // groups of one communicator that ranks of a class are in have the same classes as members.
  std::uint32_t lowest_in_group(const Communicator& communicator, std::int64_t rank) const;

 private:
  Mesh mesh_;
  Periods periods_{};  // [axis of the mesh]
  std::vector<std::uint32_t> class_of_rank_;
  std::vector<std::int64_t> representatives_;
};

// Returns a folding by axes with as few representatives as the schedule allows. pp is never folded: each stage has its
// own program. On the other axes, two ranks are not folded together when
//  - they share a device in different ways (whole devices are kept of each class, because their ranks compete for
//    cores);
//  - their views name different layers or slots;
//  - their messages go different distances. Nothing is folded when axes of the decompositions cut the ranks at places
//    that are no multiples of each other, or when devices differ.
Folding fold_ranks(const Schedule& schedule);

// Returns the folding with the fewest classes in which all ranks of a class are of one class of `coarse` and of one
// kind, and their groups, messages and devices have equal numbers of ranks of each class. It separates stragglers, the
// peers that wait for them, and the other ranks. `coarse` is a folding of the schedule by axes, `kind_of_rank` has a
// number for every rank (Paige, Tarjan, SIAM J. Comput. 16, 1987: the coarsest stable refinement). Takes time and
// memory for each rank.
Folding split_by_kind(const Schedule& schedule, const Folding& coarse, std::span<const std::uint32_t> kind_of_rank);

}  // namespace stretto
