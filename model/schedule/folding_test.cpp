#include "model/schedule/folding.hpp"

#include <catch2/catch.hpp>

#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

using Ranks = std::vector<std::int64_t>;

Schedule on(std::vector<MeshAxis> axes, std::int64_t ranks_per_device) {
  Schedule schedule;
  schedule.mesh = Mesh(std::move(axes));
  schedule.placement.ranks_per_device = ranks_per_device;
  return schedule;
}

Ranks coordinates(const ClassCoordinates& of) {
  Ranks all;
  of.visit([&](std::int64_t coordinate) { all.push_back(coordinate); });
  CHECK(of.size() == std::ssize(all));
  return all;
}

Ranks kept(const Schedule& schedule, const Ranks& apart = {}) { return fold_ranks(schedule, apart).representatives(); }

}  // namespace

TEST_CASE("one device stands for all of its stage") {
  CHECK(kept(on({{Coord::dp, 4}}, 1)) == Ranks{0});
  CHECK(kept(on({{Coord::dp, 4}}, 2)) == Ranks{0, 1});
  CHECK(kept(on({{Coord::dp, 4}, {Coord::tp, 2}}, 1)) == Ranks{0});
  CHECK(kept(on({{Coord::dp, 4}, {Coord::tp, 2}}, 4)) == Ranks{0, 1, 2, 3});
  CHECK(kept(on({{Coord::dp, 2}, {Coord::tp, 4}}, 2)) == Ranks{0, 1});
  CHECK(kept(on({{Coord::pp, 2}, {Coord::dp, 4}}, 2)) == Ranks{0, 1, 4, 5});
  CHECK(kept(on({{Coord::pp, 3}, {Coord::dp, 2}, {Coord::tp, 2}}, 2)) == Ranks{0, 1, 4, 5, 8, 9});
  CHECK(kept(on({{Coord::dp, 16384}, {Coord::cp, 2}, {Coord::tp, 2}}, 8)) == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a device that two stages share, or one that is not full, is not folded") {
  CHECK(kept(on({{Coord::dp, 3}}, 2)).size() == 3);
  CHECK(kept(on({{Coord::pp, 2}, {Coord::dp, 2}}, 4)).size() == 4);
  CHECK(kept(on({{Coord::pp, 2}, {Coord::dp, 3}}, 2)).size() == 6);
  CHECK(kept(on({{Coord::dp, 4}, {Coord::pp, 2}}, 2)).size() == 8);  // stages that are no ranges of ranks
  CHECK(kept(on({{Coord::dp, 4}, {Coord::pp, 2}}, 1)) == Ranks{0, 1});
}

TEST_CASE("every rank is represented by one of its stage, at its place of a device") {
  const Folding folding = fold_ranks(on({{Coord::pp, 2}, {Coord::dp, 6}}, 2));
  REQUIRE(folding.representatives() == Ranks{0, 1, 6, 7});
  for (std::int64_t rank = 0; rank < 12; ++rank) {
    CHECK(folding.of(rank) == rank / 6 * 6 + rank % 2);
    CHECK(folding.representatives()[folding.index_of(rank)] == folding.of(rank));
  }
  CHECK(coordinates(folding.class_of(Coord::dp, 1)) == Ranks{1, 3, 5});
  CHECK(coordinates(folding.class_of(Coord::pp, 1)) == Ranks{1});
}

// Two ranks a device and tensor-parallel groups of three: ranks 0 and 1 are in one group, 2 and 3 in two. Then devices
// are not alike, and what happens on one is not what happens on all.
TEST_CASE("devices that cut tensor-parallel groups differently are not folded") {
  CHECK(kept(on({{Coord::dp, 2}, {Coord::tp, 3}}, 2)).size() == 6);
  CHECK(kept(on({{Coord::dp, 3}, {Coord::tp, 4}}, 6)).size() == 12);
}

TEST_CASE("stragglers stand for themselves, with all ranks of their device") {
  CHECK(kept(on({{Coord::dp, 8}}, 1), {5}) == Ranks{0, 5});
  CHECK(kept(on({{Coord::dp, 8}}, 1), {0, 5}) == Ranks{0, 1, 5});
  CHECK(kept(on({{Coord::dp, 8}}, 2), {5}) == Ranks{0, 1, 4, 5});
  CHECK(kept(on({{Coord::dp, 4}, {Coord::tp, 2}}, 1), {3}) == Ranks{0, 1, 2, 3});  // dp 0 and 1, tp 0 and 1
  const Folding folding = fold_ranks(on({{Coord::dp, 8}}, 2), Ranks{5, 0});
  CHECK(coordinates(folding.class_of(Coord::dp, 3)) == Ranks{3, 7});
  CHECK(coordinates(folding.class_of(Coord::dp, 4)) == Ranks{4});
  CHECK(coordinates(folding.class_of(Coord::dp, 6)).empty());
  CHECK(folding.of(7) == 3);
}

TEST_CASE("ranks stay apart whose views name another instance, or whose messages go another distance") {
  TinySchedule tiny(4);
  CHECK(kept(tiny.schedule) == Ranks{0});
  SECTION("a slot") {
    const TensorId x = tiny.tensor("x", 1, 8);
    tiny.fill("a", 0, x);
    tiny.schedule.operations.back().accesses[0].view.slot = Coord::dp;
    CHECK(kept(tiny.schedule).size() == 4);
  }
  SECTION("a message") {
    tiny.schedule.operations.push_back({"send", PointToPoint{true, 0, 1, 8}, 0, Phase::forward, {}});
    CHECK(kept(tiny.schedule) == Ranks{0});
    CHECK(kept(tiny.schedule, {2}).size() == 4);  // the neighbours of a straggler differ as well
    std::get<PointToPoint>(tiny.schedule.operations.back().work).offset = Expr(Coord::dp) + 1;
    CHECK(kept(tiny.schedule).size() == 4);
  }
}
