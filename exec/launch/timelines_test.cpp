#include "exec/launch/timelines.hpp"

#include <catch2/catch.hpp>

#include "tests/as_processes.hpp"

namespace stretto::testing {

using launch::ProcessGroup;

namespace {
BoundProgram one_operation() {
  BoundProgram program;
  program.ops.resize(1);
  return program;
}
}  // namespace

TEST_CASE("timelines of processes count from their own beginnings of the step") {
  std::vector<Timeline> gathered(3);
  std::vector<BoundProgram> programs(3);
  for (BoundProgram& program : programs) program.ops.resize(2);
  const std::vector<std::string> errors = as_processes(3, 10, [&](ProcessGroup& group) {
    // The clocks differ widely; rank 2 has no operations.
    const Picoseconds begin = 1000 * (group.rank() + 1), length = 50 + group.rank();
    Timeline mine{begin, begin + length, {}};
    for (std::uint32_t op = 0; op < 2 && group.rank() < 2; ++op)
      mine.rows.push_back({0, op, begin + op, begin + op + 1, begin + op + 2, begin + op + 10});
    gathered[static_cast<std::size_t>(group.rank())] = launch::gather_timeline(group, mine, programs);
  });
  for (const std::string& error : errors) CHECK(error.empty());
  const Timeline& all = gathered[0];
  CHECK(all.step_begin == 0);
  CHECK(all.step_end == 52);
  REQUIRE(all.rows.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const TimelineRow& row = all.rows[i];
    CHECK(row.rank == std::int32_t(i / 2));
    CHECK(row.op == i % 2);
    CHECK(row.ready == row.op);
    CHECK(row.start == row.op + 1);
    CHECK(row.transfer == row.op + 2);
    CHECK(row.end == row.op + 10);
  }
  REQUIRE(gathered[1].rows.size() == 2);
  CHECK(gathered[1].rows[0].rank == 1);
}

TEST_CASE("a timeline of operations that a rank does not have is refused") {
  const std::vector<BoundProgram> programs(2);
  const std::vector<std::string> errors = as_processes(2, 10, [&](ProcessGroup& group) {
    Timeline mine{0, 9, {}};
    if (group.rank() == 1) mine.rows.push_back({0, 0, 1, 2, 3, 4});
    // Rank 1's program wrongly has this operation.
    launch::gather_timeline(group, mine, group.rank() == 1 ? std::vector<BoundProgram>(2, one_operation()) : programs);
    group.barrier();
  });
  CHECK(errors[0] == "rank 1 gave 56 bytes where at most 8 were expected");
}

}  // namespace stretto::testing
