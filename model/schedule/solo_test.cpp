#include "model/schedule/solo.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "model/schedule/bound_step.hpp"
#include "model/schedule/happens_before.hpp"
#include "model/schedule/order.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// A layer on "compute" and "dp": a gathers, b and c compute, d reduces, e ends it.
struct Layer : TinySchedule {
  Layer() {
    const TensorId x = tensor("x", 1, 8, BufferKind::parameter);
    all_reduce("a", 2, x);
    for (const char* name : {"b", "c"}) fill(name, 0, x);
    all_reduce("d", 2, x);
    fill("e", 0, x);
    schedule.blocks.push_back(
        {"layer",
         {0, 1, 2, 3, 4},
         {{1, EdgeKind::finish_start, 0}, {3, EdgeKind::finish_start, 2}, {4, EdgeKind::finish_start, 3}}});
    schedule.programs[0].order.clear();
    for (const std::int64_t layer : {0, 1, 2}) schedule.programs[0].order.push_back({5, layer, 0, 0, 0, 5, {}});
  }
  std::vector<Call>& order() { return schedule.programs[0].order; }
  std::vector<BlockWait>& waits() { return schedule.blocks[5].waits; }
  SoloCalls solo(std::uint32_t collectives_meet = Counterparts::kNobody) const {
    Counterparts counterparts;
    for (const Operation& operation : schedule.operations)
      counterparts.of.push_back(is_communication(operation.work) ? collectives_meet : Counterparts::kNobody);
    return find_solo_calls(schedule, bind(schedule, 0), counterparts);
  }
};

Counterparts alone(const Schedule& schedule) {
  return {std::vector<std::uint32_t>(schedule.operations.size(), Counterparts::kNobody)};
}

// The operations and waits of a block as calls of one operation each: none is solo.
Schedule cut_apart(Schedule schedule) {
  std::vector<Call> single;
  for (const Call& call : schedule.programs[0].order)
    for (std::uint32_t i = 0; i < call.count; ++i) {
      single.push_back(call);
      single.back().first += i;
      single.back().count = 1;
      if (i > 0) single.back().waits.clear();
    }
  schedule.programs[0].order = std::move(single);
  return schedule;
}

}  // namespace

TEST_CASE("calls that nobody else takes part in are solo, and those of one block share a shape") {
  Layer t;
  const SoloCalls calls = t.solo();
  REQUIRE(calls.shapes.size() == 1);
  CHECK(calls.at == std::vector<std::uint16_t>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0});
  CHECK(calls.shapes[0] == SoloShape{{{2, 0, 2}, {0, 1, 3}}, 0, 5, {0, 1, 2, 3, 4}});
  const BoundProgram program = bind(t.schedule, 0);
  // "dp" goes on in the next call before this call has ended; an edge would forbid that.
  CHECK_FALSE(is_waited_for(program, 0, calls.shapes[0]));
  for (Call& call : t.order()) call.sequence = 1;
  CHECK(is_waited_for(bind(t.schedule, 0), 0, t.solo().shapes[0]));
  CHECK_FALSE(is_waited_for(bind(t.schedule, 0), 10, t.solo().shapes[0]));  // the next call belongs to another step
}

TEST_CASE("what follows a solo call may wait for it by way of the first operation of the next call") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
  const std::vector<OpId> ops = {t.all_reduce("a", 2, x), t.fill("b", 1, x), t.fill("c", 0, x)};
  t.schedule.blocks.push_back(
      {"block", ops, {{1, EdgeKind::start_start, 0}, {2, EdgeKind::finish_start, 0}, {2, EdgeKind::finish_start, 1}}});
  for (const std::uint8_t sequence : {0, 1}) {
    auto& order = t.schedule.programs[0].order;
    order.clear();
    for (const std::int64_t layer : {0, 1}) order.push_back({3, layer, 0, 0, 0, 3, {}, 0, 0, false, sequence});
    const BoundProgram program = bind(t.schedule, 0);
    const SoloCalls calls = find_solo_calls(t.schedule, program, alone(t.schedule));
    REQUIRE(calls.shapes.size() == 1);
    CHECK(is_waited_for(program, 0, calls.shapes[0]) == (sequence == 1));
  }
}

TEST_CASE("what others take part in, or what waits inside for something outside, is not solo") {
  Layer t;
  CHECK(t.solo(Counterparts::kOthers).shapes.empty());
  Layer early;
  early.waits().erase(early.waits().begin());  // b no longer waits for a: it may start before the call does
  CHECK(early.solo().shapes.empty());
  Layer forward;
  forward.waits()[0] = {1, EdgeKind::finish_start, 3};
  CHECK(forward.solo().shapes.empty());
  Layer cut;
  cut.schedule = cut_apart(cut.schedule);
  CHECK(cut.solo().shapes.empty());
}

TEST_CASE("a call that a hardware queue makes wait for something outside is not solo, though others of its block are") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
  t.all_reduce("a", 2, x);
  t.fill("b", 0, x);
  t.fill("other", 1, x);
  t.schedule.lanes[0].queue = t.schedule.lanes[1].queue = 0;
  t.schedule.blocks.push_back({"pair", {0, 1}, {{1, EdgeKind::finish_start, 0}}});
  auto& order = t.schedule.programs[0].order;
  order.clear();
  for (const std::int64_t layer : {0, 1}) order.push_back({3, layer, 0, 0, 0, 2, {}});
  order.push_back({2, 0, 0, 0, 0, 1, {}});
  order.push_back({3, 2, 0, 0, 0, 2, {}});
  // b waits for the start of "other" in the last call. In the first call b would wait for "other" in the last call of
  // the previous step, but that is on b's own lane.
  const SoloCalls calls = find_solo_calls(t.schedule, bind(t.schedule, 0), alone(t.schedule));
  CHECK(calls.at == std::vector<std::uint16_t>{1, 0, 1, 0, 0, 0, 0});
}

TEST_CASE("the first operation of a solo call may wait for anything") {
  Layer t;
  t.order()[1].waits = {finish_of(1)};
  CHECK(t.solo().at[5] == 1);
}

namespace {

// A layer that sends something round a ring: a makes it, b sends while c receives, d uses both.
struct Ring : TinySchedule {
  Ring() {
    const TensorId x = tensor("x", 1, 8);
    fill("a", 0, x);
    message("b", true, 2);
    message("c", false, 3);
    fill("d", 0, x);
    schedule.blocks.push_back({"ring", {0, 1, 2, 3}, {}});
    waits() = {{1, EdgeKind::finish_start, 0}, {2, EdgeKind::start_start, 0}, {3, EdgeKind::finish_start, 2}};
    schedule.programs[0].order.clear();
    for (const std::int64_t layer : {0, 1, 2}) schedule.programs[0].order.push_back({4, layer, 0, 0, 0, 4, {}});
  }
  OpId message(const std::string& name, bool is_send, LaneId lane) {
    return op(name, lane, PointToPoint{is_send, 0, Expr(is_send ? 1 : -1), 8}, {});
  }
  std::vector<BlockWait>& waits() { return schedule.blocks.back().waits; }
  // Returns which calls are solo when the messages are the program's own.
  std::vector<std::uint16_t> solo() const {
    return find_solo_calls(schedule, bind(schedule, 0), {{Counterparts::kNobody, 0, 0, Counterparts::kNobody}}).at;
  }
};

using Shapes = std::vector<std::uint16_t>;

}  // namespace

TEST_CASE("messages are of a solo call when it has both ends") {
  Ring t;
  const SoloCalls calls =
      find_solo_calls(t.schedule, bind(t.schedule, 0), {{Counterparts::kNobody, 0, 0, Counterparts::kNobody}});
  CHECK(calls.at == Shapes{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0});
  CHECK(calls.shapes.front().other_end == std::vector<std::uint32_t>{0, 2, 1, 3});
  // c ends when b has started. That b runs on another rank, so c learns nothing about this rank's b.
  const SoloClocks inside = clocks_inside(bind(t.schedule, 0), 0, calls.shapes.front());
  REQUIRE(inside.order.size() == 4);  // b starts, c starts and ends, b ends
  CHECK(inside.order[1].first == 2);

  const auto apart =
      find_solo_calls(t.schedule, bind(t.schedule, 0), {{Counterparts::kNobody, 0, 1, Counterparts::kNobody}});
  CHECK(apart.at == Shapes(12, 0));
}

TEST_CASE("a call is not solo while a message from before has an end missing, nor when the step leaves one over") {
  Ring t;
  auto& order = t.schedule.programs[0].order;
  order.insert(order.begin() + 1, {1, 9, 0, 0, 0, 1, {}});  // b once more, with c after the second call
  order.insert(order.begin() + 3, {2, 9, 0, 0, 0, 1, {}});
  CHECK(t.solo() == Shapes{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
  order.erase(order.begin() + 3);
  CHECK(t.solo() == Shapes(13, 0));
}

TEST_CASE("an operation inside may wait for what is over when the call begins") {
  // The block begins with another operation that is called alone: the others, a to d, wait for it from outside.
  const auto with_waits = [&](LaneId lane, std::vector<BlockWait> more) {
    Ring r;
    const OpId before = r.fill("before", lane, TensorId{0});
    auto& [name, ops, waits] = r.schedule.blocks[4];
    ops.insert(ops.begin(), before);
    for (BlockWait& wait : waits) ++wait.op, ++wait.on;
    waits.insert(waits.begin(), more.begin(), more.end());
    std::stable_sort(waits.begin(), waits.end(), [](const BlockWait& a, const BlockWait& b) { return a.op < b.op; });
    auto& order = r.schedule.programs[0].order;
    order.clear();
    for (const std::int64_t layer : {0, 1})
      for (const auto& [first, count] : {std::pair{0u, 1u}, std::pair{1u, 4u}})
        order.push_back({4, layer, 0, 0, first, count, {}});
    const Counterparts counterparts = {{Counterparts::kNobody, 0, 0, Counterparts::kNobody, Counterparts::kNobody}};
    return find_solo_calls(r.schedule, bind(r.schedule, 0), counterparts).at;
  };
  constexpr auto finish = EdgeKind::finish_start;
  constexpr auto start = EdgeKind::start_start;
  const Shapes all = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0}, none(10, 0);
  CHECK(with_waits(0, {{3, finish, 0}}) == all);  // the lane of the first operation
  CHECK(with_waits(1, {{3, finish, 0}}) == none);
  CHECK(with_waits(1, {{1, finish, 0}, {3, finish, 0}}) == all);
  CHECK(with_waits(1, {{1, start, 0}, {3, finish, 0}}) == none);
  CHECK(with_waits(1, {{1, finish, 0}, {3, start, 0}}) == none);
}

TEST_CASE("clocks do not depend on whether calls are run as a whole") {
  std::mt19937 random(5);
  int solo = 0, with_messages = 0, deadlocks = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const auto draw = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    TinySchedule t(4);
    const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
    t.schedule.blocks.clear();
    for (BlockId b = 0; b < 3; ++b) {
      Block block;
      block.name = "block" + std::to_string(b);
      const auto add_message = [&](bool is_send, LaneId lane) {
        const std::string name = block.name + (is_send ? "send" : "receive") + std::to_string(block.ops.size());
        block.ops.push_back(t.op(name, lane, PointToPoint{is_send, 0, Expr(is_send ? 1 : -1), 8}, {}));
      };
      const bool has_messages = trial % 2 == 0 && draw(2) == 0;
      for (std::uint32_t i = 0, count = 1 + draw(5); i < count; ++i) {
        const auto lane = static_cast<LaneId>(draw(4));
        const std::string name = block.name + std::to_string(i);
        if (has_messages && draw(2) == 0) {
          const bool is_send = draw(2) == 0;
          add_message(is_send, is_send ? 2 : 3);
          if (draw(16) > 0) add_message(!is_send, is_send ? 3 : 2);
        } else {
          block.ops.push_back(lane < 2 ? t.fill(name, lane, x) : t.all_reduce(name, lane, x));
        }
      }
      for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
        const auto kind = draw(4) == 0 ? EdgeKind::start_start : EdgeKind::finish_start;
        if (i > 0 && draw(5) > 0) block.waits.push_back({i, kind, draw(i)});
      }
      t.schedule.blocks.resize(b);
      t.schedule.blocks.push_back(std::move(block));
    }
    auto& order = t.schedule.programs[0].order;
    order.clear();
    for (std::int64_t call = 0; call < 6; ++call) {
      const BlockId b = draw(3);
      const auto count = static_cast<std::uint32_t>(t.schedule.blocks[b].ops.size());
      const auto sequence = static_cast<std::uint8_t>(draw(3));
      order.push_back({b, call, 0, 0, 0, count, {}, 0, 0, false, sequence});
      if (call > 0 && draw(2) == 0) {
        const Call& on = order[draw(static_cast<std::uint32_t>(order.size() - 1))];
        const auto& ops = t.schedule.blocks[on.block].ops;
        const auto kind = draw(4) == 0 ? EdgeKind::start_start : EdgeKind::finish_start;
        order.back().waits = {
            {kind, {ops[draw(static_cast<std::uint32_t>(ops.size()))], on.layer, 0, 0, draw(5) == 0 ? 1 : 0}}};
      }
      if (count > 2 && draw(3) == 0) cut_before(t.schedule.programs[0], {order.size() - 1, 1 + draw(count - 2)});
    }
    const BoundStep bound = bind_step(t.schedule);
    const std::vector<BoundProgram>& whole = bound.programs;
    const IssueOrder& issued = bound.issued;
    if (!check_issue_order(t.schedule, whole, issued, 1).empty()) continue;  // a message without its other end
    const Schedule apart = cut_apart(t.schedule);
    const BoundStep bound_apart = bind_step(apart);
    const std::vector<BoundProgram>& single = bound_apart.programs;
    const HappensBefore a = order_steps(t.schedule, whole, issued);
    const HappensBefore b = order_steps(apart, single, bound_apart.issued);
    REQUIRE(a.deadlock == b.deadlock);
    if (!a.deadlock.empty()) {
      ++deadlocks;
      continue;
    }
    Counterparts counterparts = alone(t.schedule);
    for (OpId id = 0; id < t.schedule.operations.size(); ++id)
      if (std::holds_alternative<PointToPoint>(t.schedule.operations[id].work)) counterparts.of[id] = 0;
    const SoloCalls calls = find_solo_calls(t.schedule, whole[0], counterparts);
    for (const std::uint16_t shape : calls.at) solo += shape != 0;
    for (const SoloShape& shape : calls.shapes)
      for (std::uint32_t i = 0; i < shape.count; ++i) with_messages += shape.other_end[i] < i;
    REQUIRE(a.order[0].size() == b.order[0].size());
    for (std::size_t n = 0; n < a.order[0].size(); ++n) {
      REQUIRE(a.order[0][n].first.op == b.order[0][n].first.op);
      REQUIRE(a.order[0][n].first.step == b.order[0][n].first.step);
      REQUIRE(a.order[0][n].count == b.order[0][n].count);
    }
    const auto ops = static_cast<std::uint32_t>(whole[0].ops.size());
    for (std::uint32_t i = 0; i < ops * kUnrolledSteps; ++i)
      for (LaneId lane = 0; lane < 4; ++lane)
        REQUIRE(a.finished_before(0, {i % ops, i / ops}, lane) == b.finished_before(0, {i % ops, i / ops}, lane));
  }
  CHECK(solo > 1000);
  CHECK(with_messages > 200);
  CHECK(deadlocks > 0);
}
