#include "sim/network/groups.hpp"

#include <catch2/catch.hpp>
#include <utility>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Edges edges_of(const Rings& rings, std::size_t group) {
  Edges result;
  for (const RingEdge& edge : rings.edges[group]) result.emplace_back(edge.from, edge.to);
  return result;
}

// rank = dp · 2 + tp
Schedule dp_by_tp(std::int64_t dp, std::int64_t tp) {
  Schedule schedule;
  schedule.mesh = Mesh({{Coord::dp, dp}, {Coord::tp, tp}});
  schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, dp}, {"tp", {Coord::tp}, CommEngine::nic, 1, tp}};
  return schedule;
}

}  // namespace

TEST_CASE("groups are the instances of communicators that have simulated members", "[sim]") {
  const Schedule schedule = dp_by_tp(3, 2);
  const std::vector<std::int64_t> ranks = {0, 1};  // dp folded
  const Groups groups = find_groups(schedule, ranks);
  REQUIRE(groups.groups.size() == 3);  // a dp group for each tp, and one tp group
  CHECK(groups.of[0][0] != groups.of[1][0]);
  CHECK(groups.of[0][1] == groups.of[1][1]);
  CHECK(groups.groups[groups.of[1][0]].size == 3);
  CHECK(groups.groups[groups.of[1][0]].members == std::vector<std::uint32_t>{1});
  CHECK(groups.groups[groups.of[0][1]].members == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("rings lead around the group, folded onto the simulated ranks or over all ranks", "[sim]") {
  const Schedule schedule = dp_by_tp(3, 2);
  const std::vector<std::int64_t> ranks = {0, 1};
  const Groups groups = find_groups(schedule, ranks);
  const Rings folded = find_rings(schedule, ranks, groups, {}, false);
  CHECK(folded.endpoints == 2);
  CHECK(edges_of(folded, groups.of[0][0]) == Edges{{0, 0}});
  CHECK(edges_of(folded, groups.of[1][0]) == Edges{{1, 1}});
  CHECK(edges_of(folded, groups.of[0][1]) == Edges{{0, 1}, {1, 0}});

  const Rings all = find_rings(schedule, ranks, groups, {}, true);
  CHECK(all.endpoints == 6);
  CHECK(edges_of(all, groups.of[0][0]) == Edges{{0, 2}, {2, 4}, {4, 0}});
  CHECK(edges_of(all, groups.of[1][0]) == Edges{{1, 3}, {3, 5}, {5, 1}});
  CHECK(edges_of(all, groups.of[0][1]) == Edges{{0, 1}, {1, 0}, {2, 3}, {3, 2}, {4, 5}, {5, 4}});
}

TEST_CASE("a device of two ranks folds a ring of eight into one of two", "[sim]") {
  const Schedule schedule = dp_by_tp(8, 1);
  const std::vector<std::int64_t> ranks = {0, 1};
  const Rings rings = find_rings(schedule, ranks, find_groups(schedule, ranks), {}, false);
  CHECK(edges_of(rings, 0) == Edges{{0, 1}, {1, 0}});
}

TEST_CASE("fabrics that are too large or cannot be folded are refused", "[sim]") {
  const Schedule large = dp_by_tp(16384, 1);
  const std::vector<std::int64_t> one = {0};
  const Groups groups = find_groups(large, one);
  CHECK(find_rings(large, one, groups, {}, false).endpoints == 1);
  CHECK_THROWS_WITH(find_rings(large, one, groups, {}, true), Catch::Contains("16384 endpoints"));
  const std::vector<std::int64_t> odd = {0, 5};
  CHECK_THROWS_AS(find_rings(large, odd, find_groups(large, odd), {}, false), Error);
}

}  // namespace stretto::sim
