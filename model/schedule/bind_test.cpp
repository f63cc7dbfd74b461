#include "model/schedule/bind.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "base/error.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

// One block of two operations, called for layers 0 and 1 of micro-batches 0 and 1, and a collective on lane 2.
struct Called : TinySchedule {
  TensorId x = tensor("x", 4, 8);
  OpId fill_op, map_op, sum;

  explicit Called(std::int64_t dp = 2) : TinySchedule(dp) {
    fill_op = fill("fill", 0, x);
    map_op = map("map", 0, x, tensor("y", 4, 8));
    sum = all_reduce("sum", 2, x);
    schedule.blocks = {{"layer", {fill_op, map_op}}, {"sync", {sum}}};
    schedule.programs[0].order.clear();
    for (const std::int64_t mb : {0, 1})
      for (const std::int64_t layer : {0, 1}) schedule.programs[0].order.push_back({0, layer, mb, 0, 0, 2, {}});
    schedule.programs[0].order.push_back({1, 0, 0, 0, 0, 1, {}});
  }
  std::vector<Call>& order() { return schedule.programs[0].order; }
};

}  // namespace

TEST_CASE("binding lists every call's operations in order, by program and by lane") {
  const Called t;
  const BoundProgram bound = bind(t.schedule, 1);
  CHECK(bound.rank == 1);
  CHECK(bound.coordinates[Coord::dp] == 1);
  REQUIRE(bound.ops.size() == 9);
  for (std::uint32_t i = 0; i < 8; ++i) {
    CHECK(bound.ops[i].op == (i % 2 == 0 ? t.fill_op : t.map_op));
    CHECK(bound.ops[i].layer == std::int32_t(i / 2 % 2));
    CHECK(bound.ops[i].micro_batch == std::int32_t(i / 4));
    CHECK(bound.ops[i].lane == 0);
    CHECK(bound.ops[i].position == i);
    CHECK(bound.lanes[0][i] == i);
  }
  CHECK(bound.ops[8].op == t.sum);
  CHECK(bound.ops[8].lane == 2);
  CHECK(bound.ops[8].position == 0);
  CHECK(bound.lanes[2] == std::vector<std::uint32_t>{8});
  CHECK(bound.lanes[1].empty());
  CHECK(bound.waits.empty());
}

TEST_CASE("an edge becomes a position in the lane of the operation that it names") {
  Called t;
  t.order()[4].waits = {{EdgeKind::finish_start, {t.map_op, 1, 0, 0, 0}}, {EdgeKind::start_start, {t.sum, 0, 0, 0, 1}}};
  t.order()[1].waits = {{EdgeKind::finish_start, {t.fill_op, 0, 1, 0, 1}}};
  const BoundProgram bound = bind(t.schedule, 0);
  REQUIRE(bound.waits.size() == 3);
  const BoundOp& second = bound.ops[2];
  REQUIRE(second.wait_end - second.wait_begin == 1);
  CHECK(bound.waits[second.wait_begin].op == 4);
  CHECK(bound.waits[second.wait_begin].lane == 0);
  CHECK(bound.waits[second.wait_begin].position == 4);
  CHECK(bound.waits[second.wait_begin].steps_ago == 1);
  const BoundOp& sum = bound.ops[8];
  REQUIRE(sum.wait_end - sum.wait_begin == 2);
  CHECK(bound.waits[sum.wait_begin].kind == EdgeKind::finish_start);
  CHECK(bound.waits[sum.wait_begin].op == 3);
  CHECK(bound.waits[sum.wait_begin].position == 3);
  CHECK(bound.waits[sum.wait_begin + 1].kind == EdgeKind::start_start);
  CHECK(bound.waits[sum.wait_begin + 1].lane == 2);
  CHECK(bound.waits[sum.wait_begin + 1].position == 0);
  // Only the first operation of a call waits.
  CHECK(bound.ops[3].wait_begin == bound.ops[3].wait_end);
}

TEST_CASE("a call may be a part of its block") {
  Called t;
  t.order() = {{0, 0, 0, 0, 1, 1, {}}, {0, 0, 0, 0, 0, 1, {}}};
  const BoundProgram bound = bind(t.schedule, 0);
  REQUIRE(bound.ops.size() == 2);
  CHECK(bound.ops[0].op == t.map_op);
  CHECK(bound.ops[1].op == t.fill_op);
}

TEST_CASE("waits of a block go with every call, also where it is cut") {
  Called t;
  const OpId side = t.fill("side", 1, t.tensor("z", 4, 8));
  t.schedule.blocks[0] = {
      "layer", {t.fill_op, side, t.map_op}, {{1, EdgeKind::finish_start, 0}, {2, EdgeKind::start_start, 1}}};
  t.order() = {{0, 0, 0, 0, 0, 3, {}}, {0, 1, 0, 0, 0, 2, {}}, {0, 1, 0, 0, 2, 1, {}}};
  const BoundProgram bound = bind(t.schedule, 0);
  REQUIRE(bound.ops.size() == 6);
  REQUIRE(bound.waits.size() == 4);
  for (const std::uint32_t call : {0u, 3u}) {
    CHECK(bound.ops[call].wait_begin == bound.ops[call].wait_end);
    const BoundWait& on_fill = bound.waits[bound.ops[call + 1].wait_begin];
    CHECK(on_fill.op == call);
    CHECK(on_fill.lane == 0);
    CHECK(on_fill.kind == EdgeKind::finish_start);
    const BoundWait& on_side = bound.waits[bound.ops[call + 2].wait_begin];
    CHECK(on_side.op == call + 1);
    CHECK(on_side.lane == 1);
    CHECK(on_side.position == call / 3);
    CHECK(on_side.kind == EdgeKind::start_start);
  }
}

TEST_CASE("the first operation of a call waits for the end of the call before it in its sequence") {
  Called t;
  // "layer" ends on the lane of "side", for which nothing waits.
  const OpId side = t.fill("side", 1, t.tensor("z", 4, 8));
  t.schedule.blocks[0] = {"layer", {t.fill_op, side, t.map_op}, {{1, EdgeKind::finish_start, 0}}};
  const auto call = [](BlockId block, std::int64_t layer, std::uint32_t first, std::uint32_t count,
                       std::uint8_t sequence) {
    return Call{block, layer, 0, 0, first, count, {}, 0, 0, false, sequence};
  };
  const auto waits_of = [&](std::uint32_t op) {
    const BoundProgram bound = bind(t.schedule, 0);
    std::vector<std::pair<std::uint32_t, int>> waits;  // bound operation, steps ago
    for (std::uint32_t w = bound.ops[op].wait_begin; w < bound.ops[op].wait_end; ++w)
      waits.emplace_back(bound.waits[w].op, bound.waits[w].steps_ago);
    return waits;
  };
  using Waits = std::vector<std::pair<std::uint32_t, int>>;
  t.order() = {call(0, 0, 0, 3, 1), call(0, 1, 0, 3, 1)};
  CHECK(waits_of(0) == Waits{{4, 1}});  // layer 1 of the previous step
  CHECK(waits_of(3) == Waits{{1, 0}});  // its compute lane needs no wait
  // Where a call is cut, its second part continues the call, and the next call waits for all parts.
  t.order() = {call(0, 0, 0, 2, 1), call(0, 0, 2, 1, 1), call(0, 1, 0, 1, 1), call(0, 1, 1, 2, 1)};
  CHECK(waits_of(0) == Waits{{4, 1}});
  CHECK(waits_of(2).empty());
  CHECK(waits_of(3) == Waits{{1, 0}});
  CHECK(waits_of(4) == Waits{{3, 0}});  // within the block
  // A call that leaves out the end of its block ends earlier.
  t.order() = {call(0, 0, 0, 1, 1), call(0, 1, 0, 3, 1)};
  CHECK(waits_of(1).empty());
  // Calls of different sequences do not wait for each other, nor for calls without a sequence.
  t.order() = {call(0, 0, 0, 3, 1), call(0, 1, 0, 3, 2), call(0, 2, 0, 3, 0), call(0, 3, 0, 3, 1)};
  CHECK(waits_of(3) == Waits{{4, 1}});
  CHECK(waits_of(6).empty());
  CHECK(waits_of(9) == Waits{{1, 0}});
}

TEST_CASE("what cannot be bound is said to be so") {
  Called t;
  SECTION("an edge to an operation that the program does not contain") {
    t.order()[4].waits = {{EdgeKind::finish_start, {t.map_op, 2, 0, 0, 0}}};
    CHECK_THROWS_WITH(bind(t.schedule, 0), Contains("map") && Contains("layer 2"));
  }
  SECTION("an edge to an operation that does not exist") {
    t.order()[4].waits = {{EdgeKind::finish_start, {99, 0, 0, 0, 0}}};
    CHECK_THROWS_WITH(bind(t.schedule, 0), Contains("99"));
  }
  SECTION("an edge that could mean two operations") {
    t.order().push_back(t.order()[0]);
    CHECK_NOTHROW(bind(t.schedule, 0));  // no edge names them
    t.order()[4].waits = {{EdgeKind::finish_start, {t.map_op, 0, 0, 0, 0}}};
    CHECK_THROWS_WITH(bind(t.schedule, 0), Contains("two instances") && Contains("map"));
  }
  SECTION("a call that leaves its block") {
    t.order()[0].count = 3;
    CHECK_THROWS_AS(bind(t.schedule, 0), Error);
  }
  SECTION("an empty call with waits") {
    t.order()[1].count = 0;
    t.order()[1].waits = {{EdgeKind::finish_start, {t.sum, 0, 0, 0, 0}}};
    CHECK_THROWS_AS(bind(t.schedule, 0), Error);
  }
}

TEST_CASE("resolving a view evaluates its expressions at the call and the rank") {
  TinySchedule t(4);
  const auto storage = [&](const char* name) {
    t.schedule.storages.push_back({name, Dtype::f32, BufferKind::activation, 100});
    return static_cast<StorageId>(t.schedule.storages.size() - 1);
  };
  // Two layers of two slots, each [3, 8], at 10 elements into storages of their own.
  Tensor family{"a", 3, 8, 2, 2, {}};
  for (const char* name : {"a.l0.s0", "a.l0.s1", "a.l1.s0", "a.l1.s1"}) family.places.push_back({storage(name), 10});
  t.schedule.tensors.push_back(family);
  const Expr dp = Coord::dp;
  View view{0, Coord::layer, mod(Expr(Coord::micro_batch), 2), dp * 2, 3, 2, 8};
  t.fill("fill", 0, view);
  t.schedule.programs[0].order[0].layer = 1;
  t.schedule.programs[0].order[0].micro_batch = 3;
  const BoundProgram bound = bind(t.schedule, 3);
  const BoundView at = resolve(t.schedule, bound, bound.ops[0], 0);
  CHECK(at.storage == family.places[3].storage);
  CHECK(at.offset == 10 + 3 * 2);
  CHECK(at.rows == 3);
  CHECK(at.cols == 2);
  CHECK(at.ld == 8);

  const auto fails = [&](const std::function<void(View&, Call&)>& spoil) {
    Schedule wrong = t.schedule;
    spoil(wrong.operations[0].accesses[0].view, wrong.programs[0].order[0]);
    const BoundProgram program = bind(wrong, 3);
    CHECK_THROWS_WITH(resolve(wrong, program, program.ops[0], 0), Contains("fill") && Contains("a"));
  };
  fails([](View&, Call& call) { call.layer = 2; });
  fails([](View& v, Call&) { v.slot = Coord::micro_batch; });
  fails([](View& v, Call&) { v.offset = -1; });
  fails([](View& v, Call&) { v.offset = Expr(Coord::dp) * 2 + 1; });  // the last row of the last rank sticks out
  fails([](View& v, Call&) { v.ld = 1; });
}

TEST_CASE("labels say layer, operation and micro-batch") {
  const Called t;
  const BoundProgram bound = bind(t.schedule, 0);
  CHECK(label(t.schedule, bound.ops[7]) == "h.1 map mb 1");
}
