#include "report/exposure.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "base/rng.hpp"
#include "report/lost_time.hpp"
#include "tests/test_program.hpp"

using namespace stretto;
using stretto::test::HandMade;

namespace {

// The stretches of lost time add up to the breakdown, in order and without overlap.
void check_lost_times(const HandMade& made, const Breakdown& result) {
  std::vector<Picoseconds> exposed(result.exposed.size(), 0), of_cause(kLossCauses, 0);
  Picoseconds last = std::numeric_limits<Picoseconds>::min();
  for (const LostTime& lost : lost_times(made.schedule, made.program, made.timeline)) {
    REQUIRE(lost.begin >= last);
    REQUIRE(lost.end > lost.begin);
    last = lost.end;
    of_cause[static_cast<std::size_t>(lost.cause)] += lost.end - lost.begin;
    if (lost.cause != LossCause::exposed) continue;
    exposed[lost.communicator] += lost.end - lost.begin;
    CHECK(is_communication(made.program.work_of(lost.op)));
  }
  CHECK(exposed == result.exposed);
  CHECK(of_cause == std::vector<Picoseconds>{result.exposed_total, result.core_wait, result.queue_wait, result.host,
                                             result.bubble - result.host});
}

Breakdown breakdown_of(const HandMade& made) {
  const Breakdown result = breakdown(made.schedule, made.program, made.timeline);
  CHECK(result.compute + result.core_wait + result.exposed_total + result.queue_wait + result.bubble ==
        made.timeline.step_end - made.timeline.step_begin);
  Picoseconds sum = 0;
  for (const Picoseconds exposed : result.exposed) sum += exposed;
  CHECK(sum == result.exposed_total);
  check_lost_times(made, result);
  return result;
}

}  // namespace

TEST_CASE("a step is cut into compute, core wait, exposed and bubble", "[exposure]") {
  HandMade made;
  made.timeline.step_begin = 1000, made.timeline.step_end = 1200;
  made.compute(1000, 1010, 1050);                           // 10 core wait, 40 compute
  const auto reduce = made.add(1, 1050, 1050, 1070, 1100);  // waits 20 for its peer
  made.compute(1105, 1105, 1160, {{reduce}});               // gap 1050-1105: 30 exposed, 25 bubble
  made.add(1, 1160, 1160, 1165, 1190);                      // tail 1160-1200: 25 exposed, 15 bubble
  const Breakdown result = breakdown_of(made);
  CHECK(result.compute == 95);
  CHECK(result.core_wait == 10);
  CHECK(result.exposed == std::vector<Picoseconds>{55, 0});
  CHECK(result.bubble == 40);
}

// The sum over these ranks is beyond 64 bits.
TEST_CASE("the mean of long steps over many ranks does not overflow", "[exposure]") {
  HandMade made;
  const Picoseconds day = Picoseconds{86'400} * 1'000'000'000'000;
  made.timeline.step_end = 20 * day;
  const auto reduce = made.add(1, 0, 0, 3 * day, 5 * day);
  made.compute(6 * day, 6 * day, 20 * day - 1, {{reduce}});
  const Breakdown one = breakdown_of(made);
  const Breakdown mean = mean_breakdown(made.schedule, std::vector<BoundProgram>(100, made.program), made.timeline);
  CHECK(one.compute == 14 * day - 1);
  CHECK(mean.compute == one.compute);
  CHECK(mean.exposed == one.exposed);
  CHECK(mean.exposed_total == one.exposed_total);
  CHECK(mean.bubble == one.bubble);
  CHECK(mean.host == one.host);
}

TEST_CASE("hidden transfers and transfers nobody waits for are not exposed", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  const auto hidden = made.add(1, 0, 0, 0, 30);
  made.compute(0, 0, 40);
  made.add(2, 40, 40, 40, 60);            // on tp, running through the gap that is not its own
  made.compute(60, 60, 100, {{hidden}});  // gap 40-60 with an awaited transfer that ended before
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed_total == 0);
  CHECK(result.bubble == 20);
}

TEST_CASE("what is queued ahead of an awaited operation counts, what is after it does not", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  made.compute(0, 0, 10);
  made.add(1, 10, 10, 10, 30);
  const auto awaited = made.add(1, 10, 30, 35, 50);
  made.add(1, 10, 50, 50, 90);
  made.compute(60, 60, 100, {{awaited}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed[0] == 20 + 15);
  CHECK(result.bubble == 5 + 10);
}

TEST_CASE("communication that awaited communication waits for is exposed too", "[exposure]") {
  // A gradient is reduced inside an instance of the optimizer, then across instances; compute waits for the second.
  HandMade made;
  made.timeline.step_end = 100;
  made.compute(0, 0, 10);
  const auto over = made.add(1, 0, 0, 0, 10);
  const auto inside = made.add(1, 10, 10, 15, 40, {{over}});
  const auto across = made.add(2, 40, 40, 45, 70, {{inside}});
  made.add(1, 40, 40, 40, 60);  // no operation waits for it
  made.compute(70, 70, 100, {{across}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed == std::vector<Picoseconds>{25, 25});
  CHECK(result.bubble == 5 + 5);
}

TEST_CASE("what is waited for may itself wait for cores", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  const auto sent = made.add(1, 10, 30, 45, 60);  // its channels wait for cores from 10 to 30, and for a peer until 45
  made.compute(0, 0, 20);
  made.compute(65, 65, 100, {{sent, 0, EdgeKind::finish_start}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.core_wait == 10);
  CHECK(result.exposed[0] == 15);
  CHECK(result.bubble == 15 + 5);
  CHECK(result.compute == 55);
}

TEST_CASE("start-start waits expose nothing", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  const auto launched = made.add(1, 0, 10, 10, 90);
  made.compute(10, 10, 100, {{launched, 0, EdgeKind::start_start}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed_total == 0);
  CHECK(result.bubble == 10);
}

TEST_CASE("an instant under two transfers goes to the lower lane, once", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  const auto tp = made.add(2, 0, 0, 10, 60);
  const auto dp = made.add(1, 0, 0, 20, 40);
  made.compute(70, 70, 100, {{tp}, {dp}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed == std::vector<Picoseconds>{20, 30});
  CHECK(result.bubble == 20);
}

TEST_CASE("compute that starts before the step before has ended is not counted as exposed twice", "[exposure]") {
  // The period is 100. The last all-gather of a step runs until 130 of the next step's frame, during its forward pass,
  // which starts at 10 and waits at 20 for the all-gather of the previous step.
  HandMade made;
  made.timeline.step_begin = 30, made.timeline.step_end = 130;
  made.compute(10, 10, 20);
  const auto second = made.compute(30, 30, 90);
  const auto gather = made.add(1, 90, 90, 92, 130, {{second}});
  made.wait_for_previous_step(second, gather);
  const Breakdown result = breakdown_of(made);
  CHECK(result.compute == 70);
  // 20-30 waits for the previous step's gather (transfer 92-130 less 100: -8…30); 92-110 is the tail before the next
  // step's compute starts.
  CHECK(result.exposed[0] == 10 + 18);
  CHECK(result.bubble == 2);
}

TEST_CASE("rows of other ranks are ignored and a rank without rows is all bubble", "[exposure]") {
  HandMade made(3);
  made.timeline.step_end = 100;
  made.compute(0, 0, 100);
  made.timeline.rows[0].rank = 2;
  CHECK(breakdown_of(made).bubble == 100);
}

TEST_CASE("the parts add up whatever the rows say", "[exposure]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::uint64_t draw = 0;
    const auto pick = [&](std::uint64_t n) { return static_cast<Picoseconds>(random_bits(seed, 0, draw++) % n); };
    HandMade made;
    Picoseconds at[3] = {pick(40), pick(40), pick(40)};
    made.timeline.step_begin = pick(40);
    made.timeline.step_end = made.timeline.step_begin + 200 + pick(200);
    std::vector<std::uint32_t> communications;
    for (int i = 0; i < 30; ++i) {
      const auto lane = static_cast<LaneId>(pick(3));
      const Picoseconds ready = at[lane] + pick(10), start = ready + pick(5), moved = lane ? start + pick(5) : start;
      at[lane] = moved + pick(20);
      if (lane == 0 && !communications.empty())
        made.compute(ready, start, at[0], {{communications[pick(communications.size())], static_cast<int>(pick(2))}});
      else
        (void)(lane == 0 ? made.compute(ready, start, at[0]) : made.add(lane, ready, start, moved, at[lane]));
      if (lane != 0) communications.push_back(static_cast<std::uint32_t>(made.program.ops.size() - 1));
    }
    const Breakdown result = breakdown_of(made);
    REQUIRE((result.bubble >= 0 && result.core_wait >= 0 && result.exposed[0] >= 0 && result.exposed[1] >= 0));
  }
}

TEST_CASE("the mean of ranks adds up as well", "[exposure]") {
  HandMade first(0), second(1), third(2);
  first.compute(0, 3, 50), second.compute(0, 0, 41), third.compute(1, 1, 100);
  std::vector<BoundProgram> programs{first.program, second.program, third.program};
  Timeline all;
  all.step_end = 100;
  for (const HandMade* made : {&first, &second, &third}) all.rows.push_back(made->timeline.rows[0]);
  const Breakdown mean = mean_breakdown(first.schedule, programs, all);
  CHECK(mean.compute == (47 + 41 + 99) / 3);
  CHECK(mean.core_wait == 1);
  CHECK(mean.compute + mean.core_wait + mean.exposed_total + mean.bubble == 100);
}

namespace {

// Makes the operation a receive. Its row's `transfer` is the time at which both ends were posted.
void make_receive(HandMade& made, std::uint32_t op) {
  made.schedule.operations[op].work = PointToPoint{false, made.program.ops[op].lane - 1u, -1, 16};
}

}  // namespace

TEST_CASE("waiting for a message: until the sender has come it is bubble, then the message is exposed", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  made.compute(0, 0, 10);
  const auto received = made.add(1, 5, 5, 40, 60);  // posted at 5, sent at 40
  make_receive(made, received);
  made.compute(60, 60, 100, {{received}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed == std::vector<Picoseconds>{20, 0});
  CHECK(result.bubble == 30);
}

TEST_CASE("of joined messages each counts while it moves itself; until the others' senders come it is bubble",
          "[exposure]") {
  for (const bool is_late_first : {true, false})
    for (const bool waits_for_late : {true, false}) {
      HandMade made;
      made.timeline.step_end = 100;
      made.compute(0, 0, 10);
      // They end together, but each has begun when its peer arrived, and took 5 and 10.
      std::uint32_t late = 0, early = 0;
      for (const bool is_late : {is_late_first, !is_late_first})
        (is_late ? late : early) = made.add(1, 10, 10, is_late ? 50 : 20, 60);
      made.timeline.rows[early].waited = 35;
      make_receive(made, late);
      make_receive(made, early);
      made.program.ops[std::max(late, early)].joined = true;
      made.compute(60, 60, 100, {{waits_for_late ? late : early}});
      const Breakdown result = breakdown_of(made);
      CHECK(result.exposed == std::vector<Picoseconds>{5 + 10, 0});
      CHECK(result.bubble == 50 - 15);
    }
}

TEST_CASE("a group of messages that waits for another lane's transfer loses nothing", "[exposure]") {
  HandMade made;
  made.timeline.step_end = 100;
  const auto reduced = made.add(1, 0, 0, 40, 60);
  const auto late = made.add(2, 0, 0, 50, 60), early = made.add(2, 0, 0, 20, 60);
  make_receive(made, late);
  make_receive(made, early);
  made.program.ops[early].joined = true;
  made.timeline.rows[early].waited = 15;
  made.compute(60, 60, 100, {{reduced}, {early}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed == std::vector<Picoseconds>{20, 20});  // 40-60, then the rest of 20-45
  CHECK(result.bubble == 20);
}

namespace {

// Adds a second compute lane, 3 "side".
struct TwoLanes : HandMade {
  TwoLanes() {
    schedule.lanes.push_back({"side", LaneKind::compute, 0});
    program.lanes.resize(4);
  }
  std::uint32_t side(Picoseconds ready, Picoseconds start, Picoseconds end, std::initializer_list<Wait> waits = {}) {
    return add(3, ready, start, start, end, waits);
  }
};

}  // namespace

TEST_CASE("compute is the union of the compute lanes", "[exposure]") {
  TwoLanes made;
  made.timeline.step_end = 100;
  made.compute(0, 0, 30);
  made.side(10, 10, 50);
  made.compute(70, 70, 100);
  const Breakdown result = breakdown_of(made);
  CHECK(result.compute == 80);
  CHECK(result.bubble == 20);
}

TEST_CASE("waiting for an add on a side lane is neither bubble nor exposed; what the add waits for is", "[exposure]") {
  TwoLanes made;
  made.timeline.step_end = 100;
  made.compute(0, 0, 20);
  const auto received = made.add(1, 0, 0, 5, 40);
  const auto sum = made.side(40, 45, 60, {{received}});  // 40-45 waits for a core
  made.compute(60, 60, 100, {{sum}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.exposed[0] == 20);
  CHECK(result.core_wait == 5);
  CHECK(result.compute == 75);
  CHECK(result.bubble == 0);
}

TEST_CASE("a transfer is hidden while either lane computes, and counts once where both wait", "[exposure]") {
  TwoLanes made;
  made.timeline.step_end = 100;
  const auto dp = made.add(1, 0, 0, 0, 50), tp = made.add(2, 0, 0, 30, 70);
  made.compute(0, 0, 20);
  made.side(0, 0, 40);
  made.compute(70, 70, 90, {{tp}});
  made.side(50, 50, 60, {{dp}});  // 40-50: dp and tp, 60-70: tp
  made.side(60, 60, 65);
  made.side(100, 100, 100);
  const Breakdown result = breakdown_of(made);
  CHECK(result.compute == 40 + 10 + 5 + 20);
  CHECK(result.exposed == std::vector<Picoseconds>{10, 5});
  CHECK(result.bubble == 10);
}

TEST_CASE("a side lane that is still busy with the step before counts in the period", "[exposure]") {
  // The period is 100. The next step's compute begins at 110, when the side lane of this step is busy until 125.
  TwoLanes made;
  made.timeline.step_begin = 25, made.timeline.step_end = 125;
  made.compute(10, 10, 60);
  const auto reduced = made.add(1, 40, 40, 80, 105);
  made.side(105, 105, 125, {{reduced}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.compute == 50 + 5);  // 10-60, where 10-25 covers the previous step, and 105-110
  CHECK(result.exposed[0] == 25);
  CHECK(result.bubble == 20);
}

TEST_CASE("what waits for its hardware queue alone has a name of its own", "[exposure]") {
  HandMade made;
  for (Lane& lane : made.schedule.lanes) lane.queue = 0;
  made.timeline.step_end = 100;
  made.compute(0, 0, 20);
  const auto peers = made.add(2, 0, 50, 50, 60);
  made.compute(52, 52, 70, {{peers, 0, EdgeKind::start_start}});  // could start at 20; released at 50
  const auto awaited = made.add(1, 10, 10, 10, 80);
  made.compute(90, 90, 100, {{awaited}, {peers, 0, EdgeKind::start_start}});  // released long before
  const Breakdown result = breakdown_of(made);
  CHECK(result.queue_wait == 30);
  CHECK(result.exposed[0] == 10);
  CHECK(result.bubble == 2 + 10);
}

TEST_CASE("an awaited communication may itself wait for its hardware queue", "[exposure]") {
  HandMade made;
  for (Lane& lane : made.schedule.lanes) lane.queue = 0;
  made.timeline.step_end = 100;
  made.compute(0, 0, 20);
  const auto ahead = made.add(1, 0, 40, 40, 100);
  const auto awaited = made.add(2, 40, 40, 45, 60, {{ahead, 0, EdgeKind::start_start}});
  made.compute(60, 60, 100, {{awaited}});
  const Breakdown result = breakdown_of(made);
  CHECK(result.queue_wait == 20);
  CHECK(result.exposed == std::vector<Picoseconds>{0, 15});
  CHECK(result.bubble == 5);
}
