#include "report/excerpt.hpp"

#include <catch2/catch.hpp>

#include "tests/test_program.hpp"

using namespace stretto;
using stretto::test::HandMade;

namespace {

// `ranks` ranks that each run `operations` operations of equal names, a microsecond each.
struct Run {
  Schedule schedule;
  std::vector<BoundProgram> programs;
  Timeline timeline;

  Run(int ranks, int operations) {
    timeline.step_begin = 7;
    timeline.step_end = 7 + operations * 1'000'000;
    for (int rank = ranks - 1; rank >= 0; --rank) {  // any order is fine
      HandMade made(rank);
      for (int i = 0; i < operations; ++i) made.compute(7 + i * 1'000'000, 7 + i * 1'000'000, 7 + (i + 1) * 1'000'000);
      made.schedule.programs = {{"rank", {}}};
      schedule = made.schedule;
      programs.push_back(made.program);
      timeline.rows.insert(timeline.rows.end(), made.timeline.rows.begin(), made.timeline.rows.end());
    }
  }
  TimelineExcerpt within(std::int64_t operations, std::int64_t ranks) const {
    return excerpt(schedule, programs, timeline, {operations, ranks});
  }
};

std::vector<std::int64_t> ranks_of(const TimelineExcerpt& shown) {
  std::vector<std::int64_t> ranks;
  for (const ExcerptTrack& track : shown.tracks) ranks.push_back(track.rank);
  return ranks;
}

}  // namespace

TEST_CASE("a small timeline is shown whole, in order of ranks, from the beginning of its step", "[excerpt]") {
  const TimelineExcerpt shown = Run(3, 4).within(100, 10);
  CHECK(shown.complete());
  CHECK(ranks_of(shown) == std::vector<std::int64_t>{0, 1, 2});
  CHECK(shown.step == 4'000'000);
  CHECK(shown.labels.size() == 4);
  CHECK(shown.labels[0].name == "compute.0 mb 0");
  CHECK(shown.tracks[2].slices[1].start == 1'000'000);
  CHECK(shown.tracks[2].slices[1].label == 1);
  CHECK(shown.tracks[0].role == "rank");
}

TEST_CASE("what is too large is cut by whole ranks, and says how much there was", "[excerpt]") {
  const Run run(8, 10);
  CHECK(ranks_of(run.within(35, 32)) == std::vector<std::int64_t>{0, 1, 2});
  CHECK(ranks_of(run.within(1000, 2)) == std::vector<std::int64_t>{0, 1});
  const TimelineExcerpt shown = run.within(35, 32);
  CHECK(shown.operations() == 30);
  CHECK(shown.all_operations == 80);
  CHECK(shown.all_ranks == 8);
  CHECK_FALSE(shown.complete());
  CHECK_FALSE(shown.cut_in_time);
}

TEST_CASE("of ranks that are too large what starts around the middle of the step is shown", "[excerpt]") {
  const TimelineExcerpt shown = Run(2, 10).within(6, 32);
  REQUIRE(ranks_of(shown) == std::vector<std::int64_t>{0});
  CHECK(shown.cut_in_time);
  // The middle is 5 µs; five operations start less than 3 µs from it.
  REQUIRE(shown.tracks[0].slices.size() == 5);
  CHECK(shown.tracks[0].slices.front().start == 3'000'000);
  CHECK(shown.tracks[0].slices.back().start == 7'000'000);
  CHECK(shown.window_begin == 2'000'000);
  CHECK(shown.window_end == 8'000'000);
  CHECK(shown.all_operations == 20);
}

TEST_CASE("of roles that are too large together every one is shown between the same instants", "[excerpt]") {
  Run run(2, 10);
  run.schedule.programs = {{"stage 0", {}}, {"stage 1", {}}};
  for (BoundProgram& program : run.programs) program.role = static_cast<std::size_t>(program.rank);
  const TimelineExcerpt shown = run.within(12, 32);
  REQUIRE(ranks_of(shown) == std::vector<std::int64_t>{0, 1});
  for (const ExcerptTrack& track : shown.tracks) CHECK(track.slices.size() == 5);
  REQUIRE(shown.stages.size() == 2);
  CHECK(shown.all_bars);
}

TEST_CASE("an empty timeline has an empty excerpt; all timelines of a page share its room", "[excerpt]") {
  CHECK(excerpt(Schedule{}, {}, Timeline{}).complete());
  CHECK(limits_of_page(0).operations == 20'000);
  CHECK(limits_of_page(5).operations == 20'000);
  CHECK(limits_of_page(50).operations == 2'000);
  CHECK(limits_of_page(50).bars == 2'000);
}
