#include "model/schedule/partners.hpp"

#include <catch2/catch.hpp>

#include "model/schedule/bound_step.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

TEST_CASE("instances are those of communicators that have members among the programs") {
  Schedule schedule;
  schedule.mesh = Mesh({{Coord::dp, 3}, {Coord::tp, 2}});
  schedule.placement.ranks_per_device = 2;  // dp is folded, tp is not
  schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, 3}, {"tp", {Coord::tp}, CommEngine::nic, 1, 2}};
  schedule.programs.emplace_back();
  const BoundStep step = bind_step(schedule);
  const Partners& partners = step.issued.partners;
  REQUIRE(partners.instances.size() == 3);  // one of dp for each tp, and one of tp
  const auto& of = partners.instance_of;
  CHECK(of[0][0] != of[1][0]);
  CHECK(of[0][1] == of[1][1]);
  CHECK(partners.instances[of[1][0]].size == 3);
  CHECK(partners.instances[of[1][0]].members == std::vector<std::uint32_t>{1});
  CHECK(partners.instances[of[0][1]].members == std::vector<std::uint32_t>{0, 1});
}
