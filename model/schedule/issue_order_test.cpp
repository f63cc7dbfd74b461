#include "model/schedule/issue_order.hpp"

#include <catch2/catch.hpp>

#include "model/schedule/happens_before.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

// Two ranks with the operations a, b; rank 1 issues them in the opposite order.
struct Swapped {
  Schedule schedule;
  std::vector<BoundProgram> programs;

  Swapped(LaneId lane_b, CommEngine engine, int channels) {
    TinySchedule t(2, 2);
    const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
    t.all_reduce("a", 2, x, {}, 0);
    t.all_reduce("b", lane_b, x, {}, lane_b - 2);
    for (Communicator& c : t.schedule.communicators) c.engine = engine, c.channels = channels;
    programs.push_back(bind(t.schedule, 0));
    std::swap(t.schedule.programs[0].order[0], t.schedule.programs[0].order[1]);
    programs.push_back(bind(t.schedule, 1));
    schedule = t.schedule;
  }

  std::vector<Violation> check() const {
    return check_issue_order(schedule, programs, find_issue_order(schedule, programs, Folding(schedule.mesh)), 10);
  }
};

}  // namespace

TEST_CASE("members of a communicator issue in one order") {
  const auto found = Swapped(2, CommEngine::nic, 1).check();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == Violation::Kind::order_mismatch);
  CHECK_THAT(found[0].message, Contains("a mb 0 on rank 0") && Contains("b mb 0 on rank 1"));
}

TEST_CASE("a member that issues fewer operations is a mismatch") {
  TinySchedule t(2, 2);
  t.all_reduce("a", 2, t.tensor("x", 1, 8, BufferKind::parameter));
  std::vector<BoundProgram> programs = {bind(t.schedule, 0)};
  t.schedule.programs[0].order.clear();
  programs.push_back(bind(t.schedule, 1));
  const auto found =
      check_issue_order(t.schedule, programs, find_issue_order(t.schedule, programs, Folding(t.schedule.mesh)), 10);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].message, Contains("nothing on rank 1"));
}

TEST_CASE("two communicators in opposite order need room for both") {
  CHECK(Swapped(3, CommEngine::sm, 17).check().size() == 1);
  CHECK_THAT(Swapped(3, CommEngine::sm, 17).check()[0].message, Contains("17 + 17 channels"));
  CHECK(Swapped(3, CommEngine::sm, 16).check().empty());
  CHECK(Swapped(3, CommEngine::nic, 17).check().empty());
  CHECK(Swapped(3, CommEngine::copy_engine, 17).check().empty());
}

TEST_CASE("opposite lane orders across ranks deadlock, and the cycle says so") {
  // Two communicators share one lane: each member waits in the collective that the other member issues second.
  TinySchedule t(2, 2);
  const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
  t.all_reduce("a", 2, x, {}, 0);
  t.all_reduce("b", 2, x, {}, 1);
  std::vector<BoundProgram> programs = {bind(t.schedule, 0)};
  std::swap(t.schedule.programs[0].order[0], t.schedule.programs[0].order[1]);
  programs.push_back(bind(t.schedule, 1));
  const IssueOrder issued = find_issue_order(t.schedule, programs, Folding(t.schedule.mesh));
  CHECK(check_issue_order(t.schedule, programs, issued, 10).empty());
  const HappensBefore clocks = order_steps(t.schedule, programs, issued);
  CHECK_THAT(clocks.deadlock,
             Contains("cycle of 2") &&
                 Contains("a mb 0 (rank 0 lane dp) waits for rank 1, which comes after b mb 0 in rank 1 lane dp"));
}

TEST_CASE("instances of a communicator are apart, and folded members need not be there") {
  TinySchedule t(4, 2);
  t.schedule.mesh = Mesh({{Coord::pp, 2}, {Coord::dp, 2}});
  t.schedule.communicators[0].axes = {Coord::pp};
  t.schedule.communicators[0].size = 2;
  t.all_reduce("a", 2, t.tensor("x", 1, 8, BufferKind::parameter));
  const std::vector<BoundProgram> programs = {bind(t.schedule, 0), bind(t.schedule, 1), bind(t.schedule, 2)};
  const IssueOrder issued = find_issue_order(t.schedule, programs, Folding(t.schedule.mesh));
  std::vector<CollectiveGroup> used;
  for (const CollectiveGroup& group : issued.groups)
    if (group.communicator == 0) used.push_back(group);
  REQUIRE(used.size() == 2);
  CHECK(used[0].members == std::vector<std::uint32_t>{0, 2});
  CHECK(used[1].members == std::vector<std::uint32_t>{1});
  CHECK(order_steps(t.schedule, programs, issued).deadlock.empty());
}
