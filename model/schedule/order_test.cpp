#include "model/schedule/order.hpp"

#include <catch2/catch.hpp>
#include <optional>
#include <stdexcept>

#include "model/schedule/bind.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// A block of four operations called for two micro-batches, then a collective: fill a, b = gelu(a), c = gelu(b),
// d = gelu(c) on the compute lane.
struct Chain : TinySchedule {
  TensorId a = tensor("a", 2, 4), b = tensor("b", 2, 4), c = tensor("c", 2, 4), d = tensor("d", 2, 4);
  OpId fill_a, map_b, map_c, map_d, sum_d;

  Chain() {
    fill_a = fill("fill.a", 0, a);
    map_b = map("map.b", 0, a, b);
    map_c = map("map.c", 0, b, c);
    map_d = map("map.d", 0, c, d);
    sum_d = all_reduce("sum.d", 2, d);
    schedule.blocks = {{"chain", {fill_a, map_b, map_c, map_d}}, {"sum.d", {sum_d}}};
    schedule.programs[0].order = {
        {0, 5, 0, 0, 0, 4, {}}, {0, 5, 1, 0, 0, 4, {finish_of(sum_d, 1)}}, {1, 0, 0, 0, 0, 1, {}}};
  }
  Program& program() { return schedule.programs[0]; }
  StorageId storage(TensorId tensor) const { return schedule.tensors[tensor].places[0].storage; }
};

std::vector<OpId> issued(const Schedule& schedule) {
  std::vector<OpId> ops;
  for (const BoundOp& op : bind(schedule, 0).ops) ops.push_back(op.op);
  return ops;
}

}  // namespace

TEST_CASE("cutting a call keeps the operations, their order and their coordinates") {
  Chain t;
  const BoundProgram before = bind(t.schedule, 0);
  const std::size_t index = cut_before(t.program(), {1, 3});
  CHECK(index == 2);
  REQUIRE(t.program().order.size() == 4);
  CHECK(t.program().order[1].count == 3);
  CHECK(t.program().order[2].first == 3);
  CHECK(t.program().order[2].count == 1);
  const BoundProgram after = bind(t.schedule, 0);
  REQUIRE(after.ops.size() == before.ops.size());
  for (std::size_t i = 0; i < after.ops.size(); ++i) {
    CHECK(after.ops[i].op == before.ops[i].op);
    CHECK(after.ops[i].layer == before.ops[i].layer);
    CHECK(after.ops[i].micro_batch == before.ops[i].micro_batch);
    CHECK(after.ops[i].wait_begin == before.ops[i].wait_begin);  // waits stay with the first part
    CHECK(after.ops[i].wait_end == before.ops[i].wait_end);
  }
  // A part can be cut again.
  CHECK(cut_before(t.program(), {1, 1}) == 2);
  CHECK(issued(t.schedule) == std::vector<OpId>{0, 1, 2, 3, 0, 1, 2, 3, 4});
}

TEST_CASE("cutting at the beginning changes nothing") {
  Chain t;
  CHECK(cut_before(t.program(), {1, 0}) == 1);
  CHECK(t.program().order.size() == 3);
  CHECK(t.program().order[1].waits.size() == 1);
}

TEST_CASE("addresses follow the part of the block that a call is") {
  Chain t;
  cut_before(t.program(), {1, 2});
  const OpAddress at = address_of(t.schedule, t.program(), {2, 1}, 1);
  CHECK(at.op == t.map_d);
  CHECK(at.layer == 5);
  CHECK(at.micro_batch == 1);
  CHECK(at.steps_ago == 1);
}

TEST_CASE("first users and last writers of storages on lanes of computation") {
  const Chain t;
  const Program& program = t.schedule.programs[0];
  using Places = std::vector<std::optional<OrderPosition>>;
  const std::vector<StorageId> wanted = {t.storage(t.d), t.storage(t.a), t.storage(t.c)};
  const auto place = [](std::size_t call, std::uint32_t within) { return std::optional(OrderPosition{call, within}); };
  CHECK(first_users(t.schedule, program, wanted) == Places{place(0, 3), place(0, 0), place(0, 2)});
  // map.b only reads a; the sum of d is on a lane of communication.
  CHECK(last_writers(t.schedule, program, wanted, 3) == Places{place(1, 3), place(1, 0), place(1, 2)});
  CHECK(last_writers(t.schedule, program, wanted, 1) == Places{place(0, 3), place(0, 0), place(0, 2)});
}

TEST_CASE("the calls that consist of one operation") {
  Chain t;
  const auto calls = [&](std::vector<OpId> ops) { return calls_of(t.schedule, t.program(), ops); };
  CHECK(calls({t.sum_d}) == std::vector<std::size_t>{2});
  CHECK_THROWS_AS(calls({t.sum_d, t.map_d}), std::logic_error);
  cut_before(t.program(), {1, 3});
  CHECK(calls({t.sum_d, t.map_d}) == std::vector<std::size_t>{3, 2});
}

TEST_CASE("edits made in one pass are what they are one after the other") {
  Chain t;
  const Call sum = t.program().order[2];
  const auto named = [&](std::int64_t layer) {
    Call call = sum;
    call.layer = layer;
    return call;
  };
  OrderEdits edits(t.program());
  edits.remove(2);
  edits.insert({1, 2}, {named(1)});
  edits.insert({0, 4}, {named(2), named(3)});  // at the end of the first call: before the second
  edits.insert({1, 2}, {named(4)});            // inserted later, so it comes before layer 1
  edits.insert({}, {named(5)});
  edits.insert({1, 4}, {named(6)});
  edits.wait({1, 2}, finish_of(t.sum_d, 1));
  edits.wait({1, 0}, finish_of(t.sum_d));
  edits.wait({1, 3}, finish_of(t.sum_d));
  edits.apply();

  std::vector<std::vector<std::int64_t>> is;  // block, layer, first, count, waits
  for (const Call& call : t.program().order)
    is.push_back({call.block, call.layer, call.first, call.count, std::ssize(call.waits)});
  CHECK(is == std::vector<std::vector<std::int64_t>>{{1, 5, 0, 1, 0},
                                                     {0, 5, 0, 4, 0},
                                                     {1, 2, 0, 1, 0},
                                                     {1, 3, 0, 1, 0},
                                                     {0, 5, 0, 2, 2},
                                                     {1, 4, 0, 1, 0},
                                                     {1, 1, 0, 1, 0},
                                                     {0, 5, 2, 1, 1},
                                                     {0, 5, 3, 1, 1},
                                                     {1, 6, 0, 1, 0}});
}
