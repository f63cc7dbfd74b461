#include "model/schedule/order.hpp"

#include <catch2/catch.hpp>
#include <stdexcept>

#include "model/schedule/bind.hpp"
#include "model/schedule/tiny_schedule.hpp"

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

TEST_CASE("first user and last writer of a storage on a lane") {
  const Chain t;
  const Program& program = t.schedule.programs[0];
  const auto is = [](OrderPosition at, std::size_t call, std::uint32_t within) {
    return at.call == call && at.within == within;
  };
  CHECK(is(first_user(t.schedule, program, t.storage(t.a), 0), 0, 0));
  CHECK(is(first_user(t.schedule, program, t.storage(t.c), 0), 0, 2));
  CHECK(is(last_writer(t.schedule, program, t.storage(t.a), 0), 1, 0));  // map.b only reads it
  CHECK(is(last_writer(t.schedule, program, t.storage(t.c), 0), 1, 2));
  CHECK(is(last_writer(t.schedule, program, t.storage(t.d), 0), 1, 3));  // the sum is on another lane
  CHECK(is(last_writer(t.schedule, program, t.storage(t.d), 2), 2, 0));
  CHECK_THROWS_AS(first_user(t.schedule, program, t.storage(t.a), 1), std::logic_error);
  CHECK_THROWS_AS(last_writer(t.schedule, program, t.storage(t.a), 2), std::logic_error);
}

TEST_CASE("the call that consists of one operation") {
  Chain t;
  CHECK(call_of(t.schedule, t.program(), t.sum_d) == 2);
  CHECK_THROWS_AS(call_of(t.schedule, t.program(), t.map_d), std::logic_error);
  cut_before(t.program(), {1, 3});
  CHECK(call_of(t.schedule, t.program(), t.map_d) == 2);
  CHECK(call_of(t.schedule, t.program(), t.sum_d) == 3);
}
