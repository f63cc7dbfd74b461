#include <catch2/catch.hpp>
#include <functional>

#include "base/error.hpp"
#include "model/schedule/footprint.hpp"
#include "model/verify/verify_wanted.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;
using Kind = Violation::Kind;
using Catch::Matchers::Contains;

namespace {

// Returns the kinds found, in order.
std::vector<Kind> kinds(const Schedule& schedule, const MemoryPlan* plan = nullptr) {
  std::vector<Kind> result;
  for (const Violation& violation : verify(schedule, plan)) {
    INFO(violation.message);
    result.push_back(violation.kind);
  }
  return result;
}

std::string first_message(const Schedule& schedule) {
  const auto found = verify(schedule);
  return found.empty() ? "" : found.front().message;
}

const std::vector<Kind> kAccepted, kRace{Kind::race}, kUninitialised{Kind::uninitialised_read},
    kMalformed{Kind::malformed}, kDeadlock{Kind::deadlock}, kMismatch{Kind::order_mismatch}, kWrong{Kind::wrong_value};

// compute: make x, then use y;  dp: sum x in between.
struct ReduceChain : TinySchedule {
  using TinySchedule::TinySchedule;
  TensorId x = tensor("x", 4, 16), y = tensor("y", 4, 16);
  OpId make = fill("make", 0, x);
  OpId sum = all_reduce("sum", 2, x, {finish_of(make)});
  OpId use = map("use", 0, x, y, {finish_of(sum)});
};

}  // namespace

TEST_CASE("a correct schedule has no violations") {
  CHECK(kinds(ReduceChain().schedule) == kAccepted);
  CHECK(kinds(ReduceChain(4, 4).schedule) == kAccepted);
  CHECK(kinds(ReduceChain(16384).schedule) == kAccepted);
  ReduceChain redundant;
  redundant.waits_of(redundant.use).push_back(finish_of(redundant.make));
  redundant.waits_of(redundant.use).push_back(start_of(redundant.sum));
  redundant.waits_of(redundant.make).push_back(finish_of(redundant.sum, 1));
  CHECK(kinds(redundant.schedule) == kAccepted);
  CHECK_NOTHROW(require_verified(redundant.schedule));
  const auto wanted = [](bool is) { return [is](const Schedule&, const MemoryPlan&, const BoundStep&) { return is; }; };
  const std::optional<VerifiedSchedule> verified = plan_and_verify_wanted(redundant.schedule, wanted(true));
  REQUIRE(verified);
  CHECK(verified->plan.peak_bytes() == plan_memory(redundant.schedule).peak_bytes());
  CHECK_FALSE(plan_and_verify_wanted(redundant.schedule, wanted(false)));
  ReduceChain racing;
  racing.waits_of(racing.use).clear();
  REQUIRE(kinds(racing.schedule) != kAccepted);
  CHECK_THROWS_AS(plan_and_verify_wanted(racing.schedule, wanted(true)), Error);
}

TEST_CASE("a product is not made where one of its operands lies, a sum may be") {
  TinySchedule t;
  const TensorId in = t.tensor("in", 4, 4, BufferKind::input), a = t.tensor("a", 4, 4);
  t.map("make", 0, in, a);
  t.map("in place", 0, a, a);
  CHECK(kinds(t.schedule) == kAccepted);
  const std::vector<Access> accesses = {
      {AccessMode::read, t.whole(in)}, {AccessMode::read, t.whole(a)}, {AccessMode::write, t.whole(a)}};
  t.op("product", 0, Gemm{4, 4, 4}, accesses);
  CHECK(kinds(t.schedule) == kRace);
  CHECK_THAT(first_message(t.schedule), Contains("over its own operand a, its kernel cannot work in place"));
}

TEST_CASE("a missing edge is a race that names both operations and the edge") {
  SECTION("the reader does not wait for the writer on another lane") {
    ReduceChain t;
    t.waits_of(t.use).clear();
    const auto found = verify(t.schedule);
    REQUIRE(found.size() >= 1);
    CHECK(found[0].kind == Kind::race);
    CHECK(found[0].message ==
          "race: use mb 0 (lane compute) reads x[0,64) while sum mb 0 (lane dp) may write it; missing edge: "
          "sum mb 0 -> use mb 0");
    CHECK_THROWS_AS(require_verified(t.schedule), Error);
  }
  SECTION("the collective does not wait for the gradient") {
    ReduceChain t;
    t.waits_of(t.sum).clear();
    CHECK(verify(t.schedule)[0].kind == Kind::race);
    CHECK_THAT(first_message(t.schedule), Contains("missing edge: make mb 0 -> sum mb 0"));
  }
  SECTION("write after write") {
    TinySchedule t;
    const TensorId x = t.tensor("x", 1, 8);
    t.fill("a", 0, x);
    t.fill("b", 1, x);
    for (const Kind kind : kinds(t.schedule)) CHECK(kind == Kind::race);
    CHECK_THAT(first_message(t.schedule), Contains("missing edge: a mb 0 -> b mb 0"));
    t.waits_of(1) = {finish_of(0)};
    CHECK(kinds(t.schedule) == kRace);  // the next step's a does not wait for b
    t.waits_of(0) = {finish_of(1, 1)};
    CHECK(kinds(t.schedule) == kAccepted);
  }
  SECTION("write after read, in the step and across the step boundary") {
    TinySchedule t;
    const TensorId x = t.tensor("x", 1, 8), y = t.tensor("y", 1, 8);
    const OpId first = t.fill("first", 0, x);
    const OpId read = t.map("read", 1, x, y, {finish_of(first)});
    CHECK(kinds(t.schedule) == kRace);
    CHECK_THAT(first_message(t.schedule), Contains("read mb 0 -> first mb 0 of the next step"));
    t.waits_of(first) = {finish_of(read, 1)};
    CHECK(kinds(t.schedule) == kAccepted);
    const OpId second = t.fill("second", 0, x);
    CHECK_THAT(first_message(t.schedule), Contains("missing edge: read mb 0 -> second mb 0"));
    t.waits_of(second) = {finish_of(read)};
    CHECK(kinds(t.schedule) == kAccepted);
  }
  SECTION("a race does not depend on which lane is looked at first") {
    TinySchedule t;
    const TensorId x = t.tensor("x", 1, 8), y = t.tensor("y", 1, 8);
    t.fill("make", 1, x);
    t.map("read", 0, x, y);
    REQUIRE(!kinds(t.schedule).empty());
    CHECK_THAT(first_message(t.schedule), Contains("race: ") && Contains("missing edge: make mb 0 -> read mb 0"));
  }
}

TEST_CASE("start_start is not finish_start") {
  ReduceChain t;
  t.waits_of(t.use) = {start_of(t.sum)};
  CHECK(verify(t.schedule)[0].kind == Kind::race);
  // A wait also brings along what the awaited operation had waited for.
  TinySchedule u;
  const TensorId x = u.tensor("x", 1, 8), y = u.tensor("y", 1, 8), p = u.tensor("p", 1, 8, BufferKind::parameter);
  const OpId make = u.fill("make", 1, x);
  const OpId sum = u.all_reduce("sum", 2, p, {finish_of(make)});
  const OpId read = u.map("read", 0, x, y, {start_of(sum)});
  u.waits_of(make) = {finish_of(read, 1)};
  CHECK(kinds(u.schedule) == kAccepted);
  u.waits_of(sum) = {start_of(make)};
  CHECK(kinds(u.schedule) == kRace);
}

TEST_CASE("reads need a write in the same step") {
  TinySchedule t;
  const TensorId y = t.tensor("y", 1, 8);
  SECTION("nothing writes it") {
    t.map("read", 0, t.tensor("x", 1, 8), y);
    CHECK(kinds(t.schedule) == kUninitialised);
    CHECK_THAT(first_message(t.schedule), Contains("reads x[0,8)") && Contains("no operation of the step writes it"));
  }
  SECTION("parameters, optimizer state and inputs are there from outside, gradients and scalars are not") {
    t.map("a", 0, t.tensor("p", 1, 8, BufferKind::parameter), y);
    t.map("b", 0, t.tensor("i", 1, 8, BufferKind::input), y);
    t.map("c", 0, t.tensor("o", 1, 8, BufferKind::optimizer_state), y);
    CHECK(kinds(t.schedule) == kAccepted);
    t.map("d", 0, t.tensor("g", 1, 8, BufferKind::gradient), y);
    t.map("e", 0, t.tensor("s", 1, 8, BufferKind::scalar), y);
    CHECK(kinds(t.schedule).size() == 2);
  }
  SECTION("what the step before left does not count") {
    const TensorId x = t.tensor("x", 1, 8), flag = t.tensor("flag", 1, 8, BufferKind::parameter);
    t.map("read", 0, x, y);
    t.fill("late", 0, x);
    t.fill("touch", 0, flag);
    CHECK(kinds(t.schedule) == kUninitialised);
    CHECK_THAT(first_message(t.schedule), Contains("missing edge: late mb 0 -> read mb 0"));
  }
  SECTION("half of it is written") {
    const TensorId x = t.tensor("x", 1, 8);
    t.fill("half", 0, View{x, 0, 0, 0, 1, 4, 4});
    t.map("read", 0, x, y);
    CHECK(kinds(t.schedule) == kUninitialised);
    t.fill("other half", 0, View{x, 0, 0, 4, 1, 4, 4});
    std::swap(t.schedule.programs[0].order[1], t.schedule.programs[0].order[2]);
    CHECK(kinds(t.schedule) == kAccepted);
  }
  SECTION("the first accumulate needs an initialiser") {
    const TensorId dy = t.tensor("dy", 4, 8, BufferKind::input), g = t.tensor("g", 1, 8, BufferKind::gradient);
    const Work work = Elementwise{ElementwiseFn::column_sum, 4, 8};
    const std::vector<Access> accesses = {{AccessMode::read, t.whole(dy)}, {AccessMode::accumulate, t.whole(g)}};
    const OpId zero = t.fill("zero", 0, g);
    const OpId wgrad = t.op("wgrad", 0, work, accesses);
    t.call(wgrad, 1);
    CHECK(kinds(t.schedule) == kAccepted);
    t.schedule.programs[0].order.erase(t.schedule.programs[0].order.begin() + zero);
    CHECK(kinds(t.schedule) == kUninitialised);
  }
}

TEST_CASE("only bytes that overlap conflict") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 4, 8);
  const auto pair = [&](View a, View b) {
    TinySchedule u = t;
    u.fill("a", 0, a);
    u.fill("b", 1, b);
    return !verify(u.schedule).empty();
  };
  CHECK_FALSE(pair({x, 0, 0, 0, 1, 16, 16}, {x, 0, 0, 16, 1, 16, 16}));
  CHECK(pair({x, 0, 0, 0, 1, 17, 17}, {x, 0, 0, 16, 1, 16, 16}));
  // Columns [0,4) and [4,8) of all rows interleave without touching.
  CHECK_FALSE(pair({x, 0, 0, 0, 4, 4, 8}, {x, 0, 0, 4, 4, 4, 8}));
  CHECK(pair({x, 0, 0, 0, 4, 5, 8}, {x, 0, 0, 4, 4, 4, 8}));
  CHECK(pair({x, 0, 0, 0, 4, 4, 8}, {x, 0, 0, 26, 1, 2, 2}));
  CHECK_FALSE(pair({x, 0, 0, 0, 4, 4, 8}, {x, 0, 0, 28, 1, 4, 4}));
}

TEST_CASE("calls may read other instances of an input that nobody writes") {
  TinySchedule t;
  const TensorId y = t.tensor("y", 1, 8), in = t.tensor("in", 3, 8, BufferKind::input);
  t.schedule.tensors[in] = {"in", 1, 8, 1, 3, {{1, 0}, {1, 8}, {1, 16}}};
  View of_call = t.whole(in);
  of_call.slot = Coord::micro_batch;
  const OpId use = t.map("use", 0, of_call, t.whole(y));
  t.call(use, 1);
  t.call(use, 2);
  const auto footprints = [&] {
    const BoundProgram program = bind(t.schedule, 0);
    return Footprints(t.schedule, program).count();
  };
  CHECK(kinds(t.schedule) == kAccepted);
  CHECK(footprints() == 1);

  SECTION("they must exist") {
    t.call(use, 3);
    CHECK(kinds(t.schedule) == kMalformed);
    CHECK_THAT(first_message(t.schedule), Contains("use mb 3 accesses in[layer 0, slot 3]"));
  }
  SECTION("where one is written, they differ") {
    View last = t.whole(in);
    last.slot = 2;
    t.fill("late", 1, last);
    CHECK(footprints() == 4);
    CHECK(kinds(t.schedule).front() == Violation::Kind::race);
    CHECK_THAT(first_message(t.schedule), Contains("use mb 2"));
  }
  SECTION("where one is written through another tensor, they differ too") {
    t.schedule.tensors.push_back({"other", 1, 8, 1, 1, {{1, 8}}});
    t.fill("late", 1, TensorId(t.schedule.tensors.size() - 1));
    CHECK(footprints() == 4);
    CHECK(kinds(t.schedule).front() == Violation::Kind::race);
    CHECK_THAT(first_message(t.schedule), Contains("use mb 1"));
  }
  SECTION("of another kind, they differ") {
    t.schedule.storages[1].kind = BufferKind::activation;
    CHECK(footprints() == 3);
    CHECK(kinds(t.schedule).front() == Violation::Kind::uninitialised_read);
  }
}

TEST_CASE("shards of different ranks are judged at their own offsets") {
  TinySchedule t(2, 2);
  const TensorId x = t.tensor("x", 1, 16, BufferKind::parameter);
  const View own{x, 0, 0, Expr(Coord::dp) * 8, 1, 8, 8};
  const auto gather = [&](View shard) {
    TinySchedule u = t;
    u.op("gather", 2, Collective{CollectiveKind::all_gather, 0, 16},
         {{AccessMode::read, shard}, {AccessMode::write, u.whole(x)}});
    return u.schedule;
  };
  CHECK(kinds(gather(own)) == kAccepted);
  const Schedule wrong = gather({x, 0, 0, 0, 1, 8, 8});
  CHECK(kinds(wrong) == kMalformed);
  CHECK_THAT(first_message(wrong), Contains("is not slice 1"));
}

TEST_CASE("what cannot run is a deadlock, with its cycle") {
  SECTION("finish_start") {
    ReduceChain t;
    t.waits_of(t.sum) = {finish_of(t.use)};
    CHECK(kinds(t.schedule) == kDeadlock);
    CHECK_THAT(first_message(t.schedule), Contains("use mb 0 (lane compute) waits for the finish of sum mb 0") &&
                                              Contains("sum mb 0 (lane dp) waits for the finish of use mb 0"));
  }
  SECTION("start_start") {
    TinySchedule t;
    const OpId a = t.fill("a", 0, t.tensor("x", 1, 8));
    const OpId b = t.fill("b", 1, t.tensor("y", 1, 8));
    t.waits_of(a) = {start_of(b)};
    CHECK(kinds(t.schedule) == kAccepted);
    t.waits_of(b) = {start_of(a)};
    CHECK(kinds(t.schedule) == kDeadlock);
    CHECK_THAT(first_message(t.schedule), Contains("waits for the start of"));
  }
  SECTION("through the order of a lane") {
    TinySchedule t;
    const TensorId x = t.tensor("x", 1, 8), y = t.tensor("y", 1, 8);
    const OpId a = t.fill("a", 0, x);
    const OpId b = t.fill("b", 0, y);
    const OpId sum_y = t.all_reduce("sum_y", 2, y, {finish_of(b)});
    const OpId sum_x = t.all_reduce("sum_x", 2, x, {finish_of(a)});
    CHECK(kinds(t.schedule).size() == 2);  // next step's a and b do not wait for the sums
    t.waits_of(a) = {finish_of(sum_x, 1), finish_of(sum_y, 1)};
    CHECK(kinds(t.schedule) == kAccepted);
    t.waits_of(b) = {finish_of(sum_x)};
    CHECK(kinds(t.schedule) == kDeadlock);
    CHECK_THAT(first_message(t.schedule), Contains("which comes after sum_y mb 0 in lane dp"));
  }
  SECTION("on itself, and on the step before") {
    TinySchedule t;
    const OpId a = t.fill("a", 0, t.tensor("x", 1, 8));
    t.waits_of(a) = {finish_of(a, 1)};
    CHECK(kinds(t.schedule) == kAccepted);
    t.waits_of(a) = {finish_of(a)};
    CHECK(kinds(t.schedule) == kDeadlock);
  }
  SECTION("two communicators that wait for each other on every rank") {
    TinySchedule t(2, 2);
    const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter), y = t.tensor("y", 1, 8, BufferKind::parameter);
    const OpId a = t.all_reduce("a", 2, x);
    const OpId b = t.all_reduce("b", 3, y, {finish_of(a)});
    CHECK(kinds(t.schedule) == kAccepted);
    t.waits_of(a) = {finish_of(b)};
    CHECK(kinds(t.schedule) == kDeadlock);
    CHECK_THAT(first_message(t.schedule), Contains("rank 0 lane dp"));
  }
}

TEST_CASE("one communicator on two lanes needs an order") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter), y = t.tensor("y", 1, 8, BufferKind::parameter);
  const OpId a = t.all_reduce("a", 2, x, {}, 0);
  const OpId b = t.all_reduce("b", 3, y, {}, 0);
  CHECK(kinds(t.schedule) == kMismatch);
  t.waits_of(b) = {finish_of(a)};
  CHECK(kinds(t.schedule) == kMismatch);
  CHECK_THAT(first_message(t.schedule), Contains("missing edge: b mb 0 -> a mb 0 of the next step"));
  t.waits_of(a) = {finish_of(b, 1)};
  CHECK(kinds(t.schedule) == kAccepted);
}

TEST_CASE("malformed schedules are named before anything else is looked at") {
  ReduceChain t;
  const auto broken = [&](const std::function<void(Schedule&)>& change) {
    Schedule copy = t.schedule;
    change(copy);
    const auto found = verify(copy);
    REQUIRE(!found.empty());
    for (const Violation& violation : found) CHECK(violation.kind == Kind::malformed);
    return found.front().message;
  };
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].accesses.pop_back(); }), Contains("1 operands, gelu has 2"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].accesses[1].mode = AccessMode::read; }),
             Contains("access mode"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].accesses[0].view.rows = 3; }), Contains("[3,16]"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].accesses[0].view.offset = 1; }), Contains("[1, 65)"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].accesses[0].view.layer = 1; }), Contains("layer 1"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].accesses[0].view.tensor = 9; }), Contains("tensor 9"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].lane = 2; }), Contains("does not belong on lane dp"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.sum].lane = 0; }), Contains("does not belong on lane compute"));
  CHECK_THAT(broken([&](Schedule& s) { s.operations[t.use].lane = 7; }), Contains("lane 7"));
  CHECK_THAT(broken([&](Schedule& s) { s.storages[t.x].dtype = Dtype::i32; }), Contains("expects a floating type"));
  CHECK_THAT(broken([&](Schedule& s) { s.storages[t.x].elements = 63; }), Contains("leaves its storage"));
  CHECK_THAT(broken([&](Schedule& s) { s.tensors[t.x].places.clear(); }), Contains("0 places"));
  CHECK_THAT(broken([&](Schedule& s) { s.communicators[0].size = 3; }), Contains("its axes have 2 ranks"));
  CHECK_THAT(broken([&](Schedule& s) { std::get<Collective>(s.operations[t.sum].work).communicator = 5; }),
             Contains("communicator 5"));
  CHECK_THAT(broken([&](Schedule& s) { s.programs[0].order[0].count = 2; }), Contains("leaves block make"));
  CHECK_THAT(broken([&](Schedule& s) { s.programs[0].order[2].waits[0].on.micro_batch = 4; }),
             Contains("micro-batch 4"));
  CHECK_THAT(broken([&](Schedule& s) { s.programs[0].order[2].waits[0].on.steps_ago = 2; }), Contains("2 steps ago"));
  CHECK_THAT(broken([&](Schedule& s) {
               s.operations[t.sum].work = Collective{CollectiveKind::reduce_scatter, 0, 63};
             }),
             Contains("63 elements do not divide"));
}

TEST_CASE("gemm operands follow the transposes") {
  TinySchedule t;
  const TensorId a = t.tensor("a", 3, 5, BufferKind::parameter), b = t.tensor("b", 7, 5, BufferKind::parameter);
  const TensorId c = t.tensor("c", 3, 7);
  const std::vector<Access> accesses = {
      {AccessMode::read, t.whole(a)}, {AccessMode::read, t.whole(b)}, {AccessMode::write, t.whole(c)}};
  const OpId op = t.op("fc", 0, Gemm{3, 7, 5, false, true, false}, accesses);
  CHECK(kinds(t.schedule) == kAccepted);
  std::get<Gemm>(t.schedule.operations[op].work).trans_b = false;
  CHECK(kinds(t.schedule) == kMalformed);
  std::get<Gemm>(t.schedule.operations[op].work) = {3, 7, 5, false, true, true};
  CHECK(kinds(t.schedule) == kMalformed);
}

TEST_CASE("violations are limited and not repeated") {
  TinySchedule t;
  for (int i = 0; i < 20; ++i) {
    const std::string n = std::to_string(i);
    const OpId read = t.map("read" + n, 0, t.tensor("x" + n, 1, 8), t.tensor("y" + n, 1, 8));
    for (int mb = 1; mb < 4; ++mb) t.call(read, mb);
  }
  CHECK(verify(t.schedule).size() == 10);
  CHECK(verify(t.schedule, nullptr, 3).size() == 3);
  CHECK(verify(t.schedule, nullptr, 100).size() == 20);
}

TEST_CASE("with a plan, bytes are shared") {
  TinySchedule t;
  const TensorId in = t.tensor("in", 1, 16, BufferKind::input), out = t.tensor("out", 1, 16, BufferKind::scalar);
  const TensorId a = t.tensor("a", 1, 16), b = t.tensor("b", 1, 16), c = t.tensor("c", 1, 16);
  t.map("first", 0, in, a);
  t.map("second", 0, a, b);
  t.map("third", 0, b, c);
  t.map("fourth", 0, c, out);
  const MemoryPlan apart{{RolePlan{{0, 64, 128, 192, 256}, 320, 320}}};
  CHECK(kinds(t.schedule, &apart) == kAccepted);
  const MemoryPlan shared{{RolePlan{{0, 64, 128, 192, 128}, 256, 320}}};  // a and c
  CHECK(kinds(t.schedule, &shared) == kAccepted);
  const MemoryPlan in_place{{RolePlan{{0, 64, 128, 128, 192}, 256, 320}}};  // second reads a and writes b
  CHECK(kinds(t.schedule, &in_place) == kRace);
  CHECK_THAT(verify(t.schedule, &in_place)[0].message, Contains("over its own operand a"));
  t.map("again", 0, a, out);
  CHECK(kinds(t.schedule, &apart) == kAccepted);
  CHECK(kinds(t.schedule, &shared) == kUninitialised);  // c has clobbered a
  CHECK_THAT(verify(t.schedule, &shared)[0].message, Contains("third mb 0 (lane compute) has overwritten with c"));
  const MemoryPlan partly{{RolePlan{{0, 64, 128, 256, 132}, 320, 320}}};
  CHECK(kinds(t.schedule, &partly) == kUninitialised);

  const MemoryPlan on_input{{RolePlan{{0, 64, 32, 192, 256}, 320, 320}}};
  CHECK(kinds(t.schedule, &on_input) == kMalformed);
  const MemoryPlan too_small{{RolePlan{{0, 64, 128, 192, 256}, 300, 320}}};
  CHECK(kinds(t.schedule, &too_small) == kMalformed);
  const MemoryPlan too_few{{RolePlan{{0}, 320, 320}}};
  CHECK(kinds(t.schedule, &too_few) == kMalformed);
}

TEST_CASE("with a plan, storages of two lanes that share bytes can race") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 16), y = t.tensor("y", 1, 16);
  const OpId fill_x = t.fill("fill_x", 0, x), fill_y = t.fill("fill_y", 1, y);
  const MemoryPlan apart{{RolePlan{{0, 64}, 128, 128}}}, same{{RolePlan{{0, 0}, 64, 128}}};
  CHECK(kinds(t.schedule, &apart) == kAccepted);
  CHECK(verify(t.schedule, &same)[0].kind == Kind::race);
  CHECK_THAT(verify(t.schedule, &same)[0].message, Contains("which has the same planned bytes"));
  t.waits_of(fill_y) = {finish_of(fill_x)};
  t.waits_of(fill_x) = {finish_of(fill_y, 1)};
  CHECK(kinds(t.schedule, &same) == kAccepted);
}
