#include "model/schedule/folding.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <map>

#include "model/schedule/partners.hpp"
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
  CHECK(of.places == std::ssize(all));
  return all;
}

Ranks kept(const Schedule& schedule) { return fold_ranks(schedule).representatives(); }

// Splits by stragglers that are all of one kind.
Folding split(const Schedule& schedule, const Ranks& apart) {
  std::vector<std::uint32_t> kinds(static_cast<std::size_t>(schedule.mesh.ranks()));
  for (const std::int64_t rank : apart) kinds[static_cast<std::size_t>(rank)] = 1;
  return split_by_kind(schedule, fold_ranks(schedule), kinds);
}
Ranks kept(const Schedule& schedule, const Ranks& apart) { return split(schedule, apart).representatives(); }

// Adds a collective to every communicator, so that the members of every group meet.
void meet(Schedule& schedule) {
  for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c)
    schedule.operations.push_back(
        {"sum " + std::to_string(c), Collective{CollectiveKind::all_reduce, c, 8}, 0, Phase::forward, {}});
}

// The axes of experts in another decomposition; which coordinates stand for them does not matter here.
constexpr Coord kEdp = Coord::dp_instance, kEp = Coord::cp_exchange, kEtp = Coord::cp;
Schedule with_experts(std::vector<MeshAxis> main, std::vector<MeshAxis> experts, std::int64_t ranks_per_device) {
  Schedule schedule = on(std::move(main), ranks_per_device);
  schedule.mesh.add_decomposition(std::move(experts));
  for (const Coord axis : {Coord::dp, Coord::tp, kEdp, kEp, kEtp})
    schedule.communicators.push_back({name_of(axis), {axis}, CommEngine::nic, 1, schedule.mesh.size(axis)});
  meet(schedule);
  return schedule;
}

// Checks that the groups of all ranks of a class have equally many ranks of each class, and that the groups of
// representatives have the representatives of their classes.
void check_stable(const Schedule& schedule, const Folding& folding) {
  const auto numbers_of = [&](const Communicator& communicator, std::int64_t rank) {
    std::map<std::uint32_t, int> numbers;
    for (const std::int64_t member : members_of(schedule, communicator, rank)) ++numbers[folding.index_of(member)];
    return numbers;
  };
  std::vector<std::int64_t> sizes(folding.representatives().size());
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
    ++sizes[folding.index_of(rank)];
    CHECK(rank % schedule.placement.ranks_per_device == folding.of(rank) % schedule.placement.ranks_per_device);
    for (const Communicator& communicator : schedule.communicators) {
      const auto numbers = numbers_of(communicator, rank);
      CHECK(numbers == numbers_of(communicator, folding.of(rank)));
      CHECK(numbers.begin()->first == folding.lowest_in_group(communicator, folding.of(rank)));
    }
  }
  CHECK(sizes == folding.sizes());
}

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
  CHECK(kept(on({{Coord::dp, 4}, {Coord::pp, 2}}, 2)).size() == 8);  // stages that are not ranges of ranks
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

// Two ranks share a device and tensor-parallel groups have three ranks: ranks 0 and 1 are in one group, 2 and 3 in two.
// Then devices differ, and one device cannot stand for all.
TEST_CASE("devices that cut tensor-parallel groups differently are not folded") {
  CHECK(kept(on({{Coord::dp, 2}, {Coord::tp, 3}}, 2)).size() == 6);
  CHECK(kept(on({{Coord::dp, 3}, {Coord::tp, 4}}, 6)).size() == 12);
}

TEST_CASE("experts' groups are folded with the others, whole devices of them") {
  using Axes = std::vector<MeshAxis>;
  const Axes main = {{Coord::pp, 2}, {Coord::dp, 8}, {Coord::tp, 2}};
  for (const auto& [edp, ep, etp] : {std::array<std::int64_t, 3>{2, 8, 1}, {1, 16, 1}, {4, 2, 2}, {2, 4, 2}, {4, 4, 1}})
    for (const std::int64_t per_device : {1, 2, 4, 8, 16}) {
      const Schedule schedule = with_experts(main, {{Coord::pp, 2}, {kEdp, edp}, {kEp, ep}, {kEtp, etp}}, per_device);
      const Folding folding = fold_ranks(schedule);
      CHECK(std::ssize(folding.representatives()) == 2 * per_device);
      check_stable(schedule, folding);
    }
  // Devices of two ranks cut groups of three at different places; the pattern repeats after six ranks. Without a full
  // repetition nothing folds.
  const Schedule three = with_experts({{Coord::dp, 24}}, {{kEdp, 4}, {kEp, 3}, {kEtp, 2}}, 4);
  CHECK(kept(three).size() == 12);
  const Schedule fits = with_experts({{Coord::dp, 24}}, {{kEdp, 4}, {kEp, 6}}, 2);
  CHECK(kept(fits).size() == 2);
  check_stable(fits, fold_ranks(fits));
  // Axes that cut the ranks at multiples of 2 and of 3 have no digits in common.
  CHECK(kept(with_experts({{Coord::dp, 6}, {Coord::tp, 2}}, {{kEdp, 4}, {kEp, 3}}, 1)).size() == 12);
}

TEST_CASE("stragglers are apart, with all ranks of their device and those who wait for them") {
  const auto dp = [](std::int64_t ranks, std::int64_t per_device) {
    Schedule schedule = on({{Coord::dp, ranks}}, per_device);
    schedule.communicators.push_back({"dp", {Coord::dp}, CommEngine::nic, 1, ranks});
    meet(schedule);
    return schedule;
  };
  CHECK(kept(dp(8, 1), {5}) == Ranks{0, 5});
  CHECK(kept(dp(8, 1), {0, 5}) == Ranks{0, 1});  // both stragglers are of one kind
  CHECK(kept(dp(8, 2), {5}) == Ranks{0, 1, 4, 5});
  Schedule both = on({{Coord::dp, 4}, {Coord::tp, 2}}, 1);
  both.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, 4}, {"tp", {Coord::tp}, CommEngine::nic, 1, 2}};
  meet(both);
  CHECK(kept(both, {3}) == Ranks{0, 1, 2, 3});  // the straggler, its peers along dp and along tp, and the others
  const Folding folding = split(dp(8, 2), {5});
  CHECK(folding.of(7) == 1);
  CHECK(folding.sizes() == Ranks{3, 3, 1, 1});
  for (const std::int64_t per_device : {1, 2, 4, 8})
    for (const Ranks& slow : {Ranks{0}, {13}, {31}, {8, 9, 10, 11}, {2, 21}}) {
      const Schedule schedule = with_experts({{Coord::pp, 2}, {Coord::dp, 8}, {Coord::tp, 2}},
                                             {{Coord::pp, 2}, {kEdp, 2}, {kEp, 4}, {kEtp, 2}}, per_device);
      check_stable(schedule, split(schedule, slow));
    }
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
    CHECK(kept(tiny.schedule, {2}).size() == 4);  // every rank has another distance from the straggler
    std::get<PointToPoint>(tiny.schedule.operations.back().work).offset = Expr(Coord::dp) + 1;
    CHECK(kept(tiny.schedule).size() == 4);
  }
}
