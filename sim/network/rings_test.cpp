#include "sim/network/rings.hpp"

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
struct DpByTp {
  DpByTp(std::int64_t dp, std::int64_t tp, std::int64_t ranks_per_device) {
    schedule.mesh = Mesh({{Coord::dp, dp}, {Coord::tp, tp}});
    schedule.placement.ranks_per_device = ranks_per_device;
    schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, dp}, {"tp", {Coord::tp}, CommEngine::nic, 1, tp}};
    schedule.programs.emplace_back();
    step = bind_step(schedule);
  }
  Rings rings(bool unfolded) const { return find_rings(schedule, step, unfolded); }
  std::uint32_t instance(std::size_t program, std::size_t communicator) const {
    return step.issued.partners.instance_of[program][communicator];
  }

  Schedule schedule;
  BoundStep step;
};

}  // namespace

TEST_CASE("rings lead around the group, folded onto the simulated ranks or over all ranks", "[sim]") {
  const DpByTp t(3, 2, 2);  // dp folded
  const Rings folded = t.rings(false), all = t.rings(true);
  CHECK(folded.endpoints == 2);
  CHECK(edges_of(folded, t.instance(0, 0)) == Edges{{0, 0}});
  CHECK(edges_of(folded, t.instance(1, 0)) == Edges{{1, 1}});
  CHECK(edges_of(folded, t.instance(0, 1)) == Edges{{0, 1}, {1, 0}});
  CHECK(all.endpoints == 6);
  CHECK(edges_of(all, t.instance(0, 0)) == Edges{{0, 2}, {2, 4}, {4, 0}});
  CHECK(edges_of(all, t.instance(1, 0)) == Edges{{1, 3}, {3, 5}, {5, 1}});
  CHECK(edges_of(all, t.instance(0, 1)) == Edges{{0, 1}, {1, 0}, {2, 3}, {3, 2}, {4, 5}, {5, 4}});
}

TEST_CASE("a device of two ranks folds a ring of eight into one of two", "[sim]") {
  CHECK(edges_of(DpByTp(8, 1, 2).rings(false), 0) == Edges{{0, 1}, {1, 0}});
}

TEST_CASE("fabrics that are too large are refused", "[sim]") {
  const DpByTp large(16384, 1, 1);
  CHECK(large.rings(false).endpoints == 1);
  CHECK_THROWS_WITH(large.rings(true), Catch::Contains("16384 endpoints"));
}

}  // namespace stretto::sim
