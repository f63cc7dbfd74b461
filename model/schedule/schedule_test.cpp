#include "model/schedule/schedule.hpp"

#include <catch2/catch.hpp>

using namespace stretto;

namespace {

using Ranks = std::vector<std::int64_t>;

Schedule on(std::vector<MeshAxis> axes, std::int64_t ranks_per_device) {
  Schedule schedule;
  schedule.mesh = Mesh(std::move(axes));
  schedule.placement.ranks_per_device = ranks_per_device;
  return schedule;
}

}  // namespace

TEST_CASE("one device stands for all of its stage") {
  CHECK(representative_ranks(on({{Coord::dp, 4}}, 1)) == Ranks{0});
  CHECK(representative_ranks(on({{Coord::dp, 4}}, 2)) == Ranks{0, 1});
  CHECK(representative_ranks(on({{Coord::dp, 4}, {Coord::tp, 2}}, 1)) == Ranks{0});
  CHECK(representative_ranks(on({{Coord::dp, 4}, {Coord::tp, 2}}, 4)) == Ranks{0, 1, 2, 3});
  CHECK(representative_ranks(on({{Coord::dp, 2}, {Coord::tp, 4}}, 2)) == Ranks{0, 1});
  CHECK(representative_ranks(on({{Coord::pp, 2}, {Coord::dp, 4}}, 2)) == Ranks{0, 1, 4, 5});
  CHECK(representative_ranks(on({{Coord::pp, 3}, {Coord::dp, 2}, {Coord::tp, 2}}, 2)) == Ranks{0, 1, 4, 5, 8, 9});
}

TEST_CASE("a device that two stages share, or one that is not full, is not folded") {
  CHECK(representative_ranks(on({{Coord::dp, 3}}, 2)).size() == 3);
  CHECK(representative_ranks(on({{Coord::pp, 2}, {Coord::dp, 2}}, 4)).size() == 4);
  CHECK(representative_ranks(on({{Coord::pp, 2}, {Coord::dp, 3}}, 2)).size() == 6);
}

TEST_CASE("every rank is represented by one of its stage, at its place of a device") {
  const Schedule schedule = on({{Coord::pp, 2}, {Coord::dp, 6}}, 2);
  const Ranks kept = representative_ranks(schedule);
  REQUIRE(kept == Ranks{0, 1, 6, 7});
  for (std::int64_t rank = 0; rank < 12; ++rank)
    CHECK(representative_of(schedule, kept, rank) == rank / 6 * 6 + rank % 2);
}

// Two ranks a device and tensor-parallel groups of three: ranks 0 and 1 are in one group, 2 and 3 in two. Then devices
// are not alike, and what happens on one is not what happens on all.
TEST_CASE("devices that cut tensor-parallel groups differently are not folded") {
  CHECK(representative_ranks(on({{Coord::dp, 2}, {Coord::tp, 3}}, 2)).size() == 6);
  CHECK(representative_ranks(on({{Coord::dp, 3}, {Coord::tp, 4}}, 6)).size() == 12);
}
