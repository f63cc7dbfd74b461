#include "model/verify/class_ranges.hpp"

#include <catch2/catch.hpp>

#include "tests/draw.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// Returns the ranges of the one program that stands for all ranks.
std::vector<ClassRanges> ranges_of(const Schedule& schedule) {
  const std::vector<BoundProgram> programs = bind_representatives(schedule, fold_ranks(schedule));
  REQUIRE(programs.size() == 1);
  Footprints footprints(schedule, programs[0]);
  return find_class_ranges(schedule, programs[0], footprints);
}

}  // namespace

// An offset with a mod is evaluated rank by rank.
TEST_CASE("the ranges found on one rank are those of all ranks") {
  testing::Draw draw(11);
  int by_shifts = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Schedule> schedules;
    const std::int64_t dp = draw.between(2, 6), cp = draw.between(1, 3), unit = draw.between(1, 4);
    const std::int64_t between_dp = cp * unit + (draw.seldom() ? 1 : 0);
    const std::int64_t before = draw.between(0, 2), after = draw.between(0, 2), gap = draw.between(0, 1);
    const std::int64_t first = draw.between(1, unit), second = draw.between(1, unit);
    for (const bool rank_by_rank : {false, true}) {
      TinySchedule t(dp);
      t.schedule.mesh = Mesh({{Coord::dp, dp}, {Coord::cp, cp}});
      const std::int64_t elements = before + dp * between_dp + 2 * unit + gap + after;
      const TensorId x = t.tensor("x", 1, elements, BufferKind::parameter);
      const auto part = [&](std::int64_t begin, std::int64_t count) {
        Expr offset = Expr(Coord::dp) * Expr(between_dp) + Expr(Coord::cp) * Expr(unit) + Expr(before + begin);
        if (rank_by_rank) offset = mod(offset, 1 << 20);
        return View{x, 0, 0, offset, 1, count, count};
      };
      t.map("read", 0, part(0, first), t.whole(t.tensor("y", 1, first)));
      t.map("also", 0, part(gap, second), t.whole(t.tensor("z", 1, second)));
      schedules.push_back(t.schedule);
    }
    const std::vector<ClassRanges> quick = ranges_of(schedules[0]), slow = ranges_of(schedules[1]);
    REQUIRE(quick.size() == slow.size());
    for (std::size_t i = 0; i < quick.size(); ++i) {
      CHECK(quick[i].storage == slow[i].storage);
      REQUIRE(quick[i].patterns.size() == slow[i].patterns.size());
      for (std::size_t p = 0; p < quick[i].patterns.size(); ++p) {
        CHECK(quick[i].patterns[p].accesses == slow[i].patterns[p].accesses);
        CHECK(quick[i].patterns[p].where == slow[i].patterns[p].where);
      }
    }
    by_shifts += first == unit && second == unit && between_dp == cp * unit;
  }
  CHECK(by_shifts > 3);  // cases in which the ranges of all ranks were one range
}
