// The verifier's findings about sends, receives, groups of messages and communicators of a part of an axis.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/schedule/partners.hpp"
#include "model/schedule/plan.hpp"
#include "model/verify/verify.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

// Two stages. Stage 0 makes x and sends it, stage 1 receives it as y and uses it. Lanes are those of TinySchedule; lane
// 2 has the messages.
struct TwoStages : TinySchedule {
  TwoStages() : TinySchedule(1) {
    schedule.mesh = Mesh({{Coord::pp, 2}});
    schedule.communicators = {{"pp", {Coord::pp}, CommEngine::nic, 1, 2}};
    schedule.programs = {{"stage 0", {}}, {"stage 1", {}}};
  }
  // Moves the call that was added last to stage 1.
  OpId on_stage_1(OpId id) {
    schedule.programs[1].order.push_back(schedule.programs[0].order.back());
    schedule.programs[0].order.pop_back();
    return id;
  }
  OpId send(const std::string& name, View what, std::vector<Edge> waits, LaneId lane = 2) {
    return op(name, lane, PointToPoint{true, 0, 1, what.rows * what.cols}, {{AccessMode::read, what}},
              std::move(waits));
  }
  OpId receive(const std::string& name, View what, std::vector<Edge> waits, LaneId lane = 2) {
    return op(name, lane, PointToPoint{false, 0, 1, what.rows * what.cols}, {{AccessMode::write, what}},
              std::move(waits));
  }
  Call& call_of(OpId id) {
    for (Program& program : schedule.programs)
      for (Call& call : program.order)
        if (call.block == id) return call;
    throw std::logic_error("no such call");
  }
  void forget(OpId id) {
    for (Program& program : schedule.programs)
      std::erase_if(program.order, [&](const Call& call) { return call.block == id; });
  }
};

struct OneMessage : TwoStages {
  TensorId x = tensor("x", 4, 16), y = tensor("y", 4, 16), z = tensor("z", 4, 16);
  OpId make = fill("make", 0, x), sent = send("sent", whole(x), {finish_of(make)});
  OpId received = on_stage_1(receive("received", whole(y), {}));
  OpId use = on_stage_1(map("use", 0, y, z, {finish_of(received)}));
  OneMessage() {
    call_of(make).waits = {finish_of(sent, 1)};
    call_of(received).waits = {finish_of(use, 1)};
  }
};

// Returns the first finding; "" when there is none.
std::string finding(const Schedule& schedule) {
  const auto found = verify(schedule, nullptr, 1);
  return found.empty() ? "" : found.front().message;
}

}  // namespace

TEST_CASE("a message with its edges is correct") {
  const OneMessage t;
  CHECK(finding(t.schedule).empty());
  const MemoryPlan plan = plan_memory(t.schedule);
  CHECK(verify(t.schedule, &plan).empty());
  CHECK(plan.roles.size() == 2);
}

TEST_CASE("each edge of a message is needed") {
  OneMessage t;
  SECTION("what is sent has been made") {
    t.call_of(t.sent).waits.clear();
    CHECK_THAT(finding(t.schedule), Contains("sent") && Contains("make"));
  }
  SECTION("what is received is there before it is used") {
    t.call_of(t.use).waits.clear();
    CHECK_THAT(finding(t.schedule), Contains("use") && Contains("received"));
  }
  SECTION("the receiver's start does not say that it has it") {
    t.call_of(t.use).waits = {start_of(t.received)};
    CHECK_THAT(finding(t.schedule), Contains("use") && Contains("received"));
  }
  SECTION("the sender keeps the buffer until it is sent") {
    t.call_of(t.make).waits.clear();
    CHECK_THAT(finding(t.schedule),
               Contains("race") && Contains("make") && Contains("sent") && Contains("of the next step"));
  }
  SECTION("a receive is posted when the buffer's last user is done with it") {
    t.call_of(t.received).waits.clear();
    CHECK_THAT(finding(t.schedule),
               Contains("race") && Contains("received") && Contains("use") && Contains("of the next step"));
  }
}

TEST_CASE("that a message was received says that the other end had started, no more") {
  // Stage 1 answers. The answer's arrival does not mean that this stage's own message is over.
  OneMessage t;
  const TensorId answer = t.tensor("answer", 4, 16);
  const OpId answered = t.on_stage_1(t.send("answered", t.whole(t.z), {finish_of(t.use)}));
  t.call_of(t.use).waits.push_back(finish_of(answered, 1));
  const OpId got = t.receive("got", t.whole(answer), {}, 3);
  const OpId again = t.fill("again", 0, t.x, {finish_of(got)});
  CHECK_THAT(finding(t.schedule), Contains("race") && Contains("again") && Contains("sent"));
  t.call_of(again).waits.push_back(finish_of(t.sent));
  CHECK(finding(t.schedule).empty());
}

TEST_CASE("every send has its receive, of one size") {
  OneMessage t;
  SECTION("without a receive") {
    t.forget(t.use);
    t.forget(t.received);
    CHECK_THAT(finding(t.schedule),
               Contains("order mismatch") && Contains("sent by sent mb 0") && Contains("received by nothing"));
  }
  SECTION("without a send") {
    t.forget(t.make);
    t.forget(t.sent);
    CHECK_THAT(finding(t.schedule), Contains("sent by nothing") && Contains("received by received mb 0"));
  }
  SECTION("of another size") {
    View half = t.whole(t.y);
    half.rows = 2;
    t.schedule.operations[t.received].work = PointToPoint{false, 0, 1, 32};
    t.schedule.operations[t.received].accesses[0].view = half;
    CHECK_THAT(finding(t.schedule), Contains("of another size"));
  }
  CHECK_THROWS_WITH(plan_memory(t.schedule), Contains("order mismatch"));
}

TEST_CASE("both stages send before they receive: a deadlock, unless in one group") {
  TwoStages t;
  const TensorId x = t.tensor("x", 4, 16), y = t.tensor("y", 4, 16);
  const OpId make = t.fill("make", 0, x);
  t.send("s0", t.whole(x), {finish_of(make)});
  const OpId r0 = t.receive("r0", t.whole(y), {});
  const OpId make_1 = t.on_stage_1(t.fill("make 1", 0, x));
  t.on_stage_1(t.send("s1", t.whole(x), {finish_of(make_1)}));
  const OpId r1 = t.on_stage_1(t.receive("r1", t.whole(y), {}));
  t.call_of(make).waits = {finish_of(r0, 1)};
  t.call_of(make_1).waits = {finish_of(r1, 1)};
  CHECK_THAT(finding(t.schedule), Contains("deadlock, a cycle of 2") && Contains("s0") && Contains("s1"));
  t.call_of(r0).joined = true;
  t.call_of(r1).joined = true;
  CHECK(finding(t.schedule).empty());
  SECTION("one group is enough") {
    t.call_of(r1).joined = false;
    CHECK(finding(t.schedule).empty());
  }
  SECTION("a group does not wait for itself") {
    t.call_of(r0).waits = {finish_of(make + 1)};
    CHECK_THAT(finding(t.schedule), Contains("deadlock, a cycle of 1"));
  }
}

TEST_CASE("what cannot be joined is malformed") {
  OneMessage t;
  SECTION("to nothing") { t.call_of(t.received).joined = true; }
  SECTION("to compute") { t.call_of(t.sent).joined = true; }
  SECTION("not a message") { t.call_of(t.use).joined = true; }
  SECTION("on another lane") {
    const OpId other = t.send("other", t.whole(t.x), {finish_of(t.make)}, 3);
    t.call_of(other).joined = true;
  }
  CHECK_THAT(finding(t.schedule), Contains("malformed") && Contains("only a send or receive can be joined"));
  CHECK_NOTHROW([&] {
    try {
      plan_memory(t.schedule);  // plan_memory may be called before verify, and may refuse
    } catch (const Error&) {
    }
  }());
}

TEST_CASE("a communicator of a part of an axis") {
  TinySchedule t(1);
  t.schedule.mesh = Mesh({{Coord::pp, 3}});
  t.schedule.communicators = {{"ends", {Coord::pp}, CommEngine::nic, 1, 2, {0, 2}}};
  t.schedule.programs = {{"stage 0", {}}, {"stage 1", {}}, {"stage 2", {}}};
  const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
  t.all_reduce("sum", 2, x);
  const Call call = t.schedule.programs[0].order[0];
  t.schedule.programs[2].order.push_back(call);
  CHECK(finding(t.schedule).empty());
  CHECK(members_of(t.schedule, t.schedule.communicators[0], 2) == std::vector<std::int64_t>{0, 2});
  CHECK(members_of(t.schedule, t.schedule.communicators[0], 1).empty());

  SECTION("whoever is not a member cannot use it") {
    t.schedule.programs[1].order.push_back(call);
    CHECK_THAT(finding(t.schedule), Contains("rank 1 uses communicator ends, and the rank is not a member of it"));
  }
  SECTION("a member that does not come") {
    t.schedule.programs[2].order.clear();
    CHECK_THAT(finding(t.schedule), Contains("nothing on rank 2"));
  }
  SECTION("coordinates ascend and exist") {
    for (const std::vector<std::int64_t>& subset : {std::vector<std::int64_t>{2, 0}, {0, 0}, {0, 3}, {-1, 2}}) {
      t.schedule.communicators[0].subset = subset;
      CHECK_THAT(finding(t.schedule), Contains("its subset must be ascending coordinates of the axis"));
    }
  }
  SECTION("of one axis") {
    t.schedule.communicators[0].axes = {Coord::pp, Coord::dp};
    CHECK_THAT(finding(t.schedule), Contains("a subset needs exactly one axis"));
  }
  SECTION("of its size") {
    t.schedule.communicators[0].size = 3;
    CHECK_THAT(finding(t.schedule), Contains("malformed") && Contains("ends"));
  }
}

TEST_CASE("what a neighbour has done before it sent says nothing about the rank's own lanes") {
  TinySchedule t(2);  // folded: one rank stands for both
  const TensorId made = t.tensor("made", 4, 16), got = t.tensor("got", 4, 16), out = t.tensor("out", 4, 16);
  const OpId make = t.fill("make", 0, made);
  const OpId send =
      t.op("send", 2, PointToPoint{true, 0, 1, 64}, {{AccessMode::read, t.whole(made)}}, {finish_of(make)});
  const OpId receive = t.op("receive", 3, PointToPoint{false, 0, -1, 64}, {{AccessMode::write, t.whole(got)}});
  const OpId use = t.map("use", 1, made, out, {finish_of(receive)});
  t.waits_of(make) = {finish_of(send, 1), finish_of(use, 1)};
  CHECK_THAT(finding(t.schedule), Contains("made"));
  t.waits_of(use).push_back(finish_of(make));
  CHECK(finding(t.schedule).empty());
}
