#include "report/critical_path.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/test_program.hpp"

namespace stretto {
namespace {

std::vector<std::uint32_t> ops_of(const CriticalPath& path) {
  std::vector<std::uint32_t> ops;
  for (const TimelineRow& row : path.rows) ops.push_back(row.op);
  return ops;
}

TEST_CASE("a critical path leads through what was waited for last") {
  test::HandMade made;
  made.compute(0, 0, 10);                                // 0
  const auto sent = made.add(1, 10, 10, 10, 40, {{0}});  // 1: concurrent with 2
  made.compute(10, 12, 30);                              // 2
  made.compute(40, 43, 50, {{sent}});                    // 3: after the communication, which ended later than 2
  made.add(2, 30, 30, 30, 45);                           // 4: no operation waits for it
  made.timeline.step_end = 50;
  const CriticalPath path = critical_path(test::step_of(made.schedule, {made.program}), made.timeline);
  CHECK(ops_of(path) == std::vector<std::uint32_t>{0, 1, 3});
  CHECK(path.length == 50);
  CHECK(path.compute == 17);
  CHECK(path.communication == 30);
  CHECK(path.between == 3);
}

TEST_CASE("after the start of another operation a critical path goes on with what that one waited for") {
  test::HandMade made;
  made.compute(0, 2, 10);
  const auto concurrent = made.add(1, 10, 11, 11, 40, {{0}});
  made.add(2, 12, 12, 12, 50, {{concurrent, 0, EdgeKind::start_start}});
  made.timeline.step_end = 50;
  const CriticalPath path = critical_path(test::step_of(made.schedule, {made.program}), made.timeline);
  CHECK(ops_of(path) == std::vector<std::uint32_t>{0, 2});
  CHECK(path.compute == 8);
  CHECK(path.communication == 38);
  CHECK(path.between == 4);
}

TEST_CASE("a critical path goes over to the rank that came last") {
  test::HandMade first(0), second(1);
  first.schedule.mesh = Mesh({{Coord::dp, 2}});
  for (test::HandMade* made : {&first, &second}) {
    const bool is_late = made == &second;
    made->compute(0, 0, is_late ? 30 : 10);
    const auto sum = made->add(1, is_late ? 30 : 10, is_late ? 30 : 10, 30, 45, {{0}});
    made->compute(45, 45, is_late ? 50 : 60, {{sum}});
  }
  Timeline both = first.timeline;
  both.rows.insert(both.rows.end(), second.timeline.rows.begin(), second.timeline.rows.end());
  both.step_end = 60;
  const CriticalPath path = critical_path(test::step_of(first.schedule, {first.program, second.program}), both);
  REQUIRE(path.rows.size() == 3);
  CHECK(path.rows[0].rank == 1);
  CHECK(path.rows[1].rank == 1);
  CHECK(path.rows[2].rank == 0);
  CHECK(path.compute == 45);
  CHECK(path.communication == 15);
  CHECK(path.between == 0);
}

TEST_CASE("a step without operations has no critical path") {
  test::HandMade made;
  const CriticalPath path = critical_path(test::step_of(made.schedule, {made.program}), made.timeline);
  CHECK(path.rows.empty());
  CHECK(path.length == 0);
}

TEST_CASE("waits for the step before are the beginning of this one") {
  test::HandMade made;
  const auto op = made.compute(5, 5, 10);
  const auto last = made.add(1, 10, 10, 10, 20, {{op}});
  made.wait_for_previous_step(op, last);
  made.timeline.step_end = 20;
  const CriticalPath path = critical_path(test::step_of(made.schedule, {made.program}), made.timeline);
  CHECK(path.rows.size() == 2);
  CHECK(path.between == 5);
}

}  // namespace
}  // namespace stretto
