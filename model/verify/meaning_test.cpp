// Schedules in which everything is ordered, but something reads the wrong value.
#include "model/verify/meaning.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "model/verify/verify.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

// Returns the only finding, which must be a wrong value, or "".
std::string wrong_value(const Schedule& schedule) {
  const std::vector<Violation> found = verify(schedule);
  if (found.empty()) return "";
  CHECK(found.size() == 1);
  CHECK(found.front().kind == Violation::Kind::wrong_value);
  return found.front().message;
}

// Forward of two micro-batches, then backward of both, on one lane.
struct TwoMicroBatches : TinySchedule {
  std::int64_t slots;
  TensorId x, y = tensor("y", 4, 16);
  OpId forward = 0, backward = 0;
  explicit TwoMicroBatches(std::int64_t slots_of_x) : slots(slots_of_x), x(tensor("x", 4, 16)) {
    Tensor& family = schedule.tensors[x];
    family.slots = slots;
    for (std::int64_t s = 1; s < slots; ++s) {
      family.places.push_back({static_cast<StorageId>(schedule.storages.size()), 0});
      schedule.storages.push_back(schedule.storages[0]);
    }
    View of_x = whole(x);
    of_x.slot = mod(Expr(Coord::micro_batch), slots);
    forward = fill("forward", 0, of_x);
    call(forward, 1);
    backward = map("backward", 0, of_x, whole(y));
    call(backward, 1);
  }
};

}  // namespace

TEST_CASE("a slot that another micro-batch has taken is a wrong value") {
  CHECK(wrong_value(TwoMicroBatches(2).schedule) == "");
  CHECK_THAT(wrong_value(TwoMicroBatches(1).schedule),
             Contains("backward mb 0 (lane compute) reads x[0,64), which x of micro-batch 1 has overwritten"));
}

TEST_CASE("a slot that another tensor has taken in one micro-batch is a wrong value") {
  TwoMicroBatches t(2);
  const TensorId z = t.tensor("z", 4, 16);
  Tensor& family = t.schedule.tensors[z];
  family.slots = 2;
  family.places.push_back({static_cast<StorageId>(t.schedule.storages.size()), 0});
  t.schedule.storages.push_back(t.schedule.storages[0]);
  View of_z = t.whole(z);
  of_z.slot = mod(Expr(Coord::micro_batch), 2);
  const OpId other = t.fill("other", 0, of_z);
  t.call(other, 1);
  // Both calls come between the forward passes and the backward passes.
  std::vector<Call>& order = t.schedule.programs[0].order;
  std::rotate(order.end() - 4, order.end() - 2, order.end());
  CHECK(wrong_value(t.schedule) == "");
  t.schedule.tensors[z].places[1] = t.schedule.tensors[t.x].places[1];
  CHECK_THAT(wrong_value(t.schedule), Contains("backward mb 1 (lane compute) reads x") &&
                                          Contains("which comes through z, but not in every micro-batch"));
}

TEST_CASE("a chunk's activations are its own") {
  TwoMicroBatches t(2);
  for (Call& call : t.schedule.programs[0].order) call.chunk = call.micro_batch;
  CHECK(wrong_value(t.schedule) == "");
  t.schedule.programs[0].order.back().chunk = 0;
  CHECK_THAT(wrong_value(t.schedule),
             Contains("backward mb 1 (lane compute) reads x[0,64), which comes from another chunk, but not in every"));
}

TEST_CASE("layers that share bytes read what they wrote themselves") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 4, 16), y = t.tensor("y", 4, 16);
  t.schedule.tensors[x].layers = 2;
  t.schedule.tensors[x].places.push_back(t.schedule.tensors[x].places[0]);
  View own = t.whole(x);
  own.layer = Coord::layer;
  const OpId make = t.fill("make", 0, own), use = t.map("use", 0, own, t.whole(y));
  CHECK(wrong_value(t.schedule) == "");
  t.call(make, 0);
  t.call(use, 0);
  for (const std::size_t call : {2, 3}) t.schedule.programs[0].order[call].layer = 1;
  CHECK(wrong_value(t.schedule) == "");
  std::swap(t.schedule.programs[0].order[1], t.schedule.programs[0].order[2]);
  CHECK_THAT(wrong_value(t.schedule),
             Contains("use mb 0 (lane compute) reads x[0,64), which x of layer 1 of micro-batch 0"));
}

TEST_CASE("a gradient is read when it is complete, and never added to again") {
  TinySchedule t;
  const TensorId dy = t.tensor("dy", 4, 16), g = t.tensor("g", 1, 16, BufferKind::gradient), y = t.tensor("y", 1, 16);
  t.fill("zero", 0, g);
  const OpId make = t.fill("make", 0, dy);
  const OpId add = t.op("add", 0, Elementwise{ElementwiseFn::column_sum, 4, 16},
                        {{AccessMode::read, t.whole(dy)}, {AccessMode::accumulate, t.whole(g)}});
  t.call(make, 1);
  t.call(add, 1);
  const OpId sum = t.all_reduce("sum", 2, g, {{EdgeKind::finish_start, {add, 0, 1, 0, 0}}});
  t.map("use", 0, g, y, {finish_of(add + 1)});
  auto& order = t.schedule.programs[0].order;
  for (Call& call : order)
    if (call.block == make && call.micro_batch == 0) call.waits.push_back(finish_of(add + 1, 1));
  order[0].waits.push_back(finish_of(add + 1, 1));
  CHECK(wrong_value(t.schedule) == "");

  SECTION("its maximum over ranks is taken") {
    std::get<Collective>(t.schedule.operations[sum].work).reduction = Reduction::max;
    CHECK_THAT(wrong_value(t.schedule), Contains("whose maximum it takes, and not the sum"));
  }
  SECTION("reduced before the last micro-batch") {
    std::swap(order[4], order[5]);
    order[4].waits = {finish_of(add)};
    order[5].waits = {finish_of(add + 1)};
    CHECK_THAT(wrong_value(t.schedule),
               Contains("sum mb 0 (lane dp) adds to g[0,16), which does not hold equally many gradients of each of 2"));
  }
  SECTION("a micro-batch is missing") {
    order.erase(order.begin() + 4);
    order[4].waits = {finish_of(add)};
    CHECK_THAT(wrong_value(t.schedule), Contains("(1 in all)"));
  }
  SECTION("one counts twice, another not at all") {
    for (const std::size_t call : {3, 4}) order[call].micro_batch = 0, order[call].layer = 1;
    order[5].waits = {{EdgeKind::finish_start, {add, 1, 0, 0, 0}}};
    order[6].micro_batch = 1;  // another micro-batch, with no gradient
    CHECK_THAT(wrong_value(t.schedule), Contains("(2 in all)"));
  }
  SECTION("used before it is reduced") {
    std::swap(order[5], order[6]);
    order[5].waits.clear();
    order[6].waits = {finish_of(add + 2)};
    order[3].waits.clear();
    CHECK_THAT(wrong_value(t.schedule), Contains("adds to g[0,16), which use mb 0 has read before this"));
  }
}

TEST_CASE("parameters are those of the step") {
  // gather → use → update of the own shard, as overlap_param_gather has it.
  TinySchedule t;
  const TensorId w = t.tensor("w", 1, 16, BufferKind::parameter), y = t.tensor("y", 1, 16);
  const TensorId g = t.tensor("g", 1, 8, BufferKind::gradient),
                 norm = t.tensor("norm", 1, 1, BufferKind::scalar, Dtype::f64),
                 hyper = t.tensor("hyper", 1, 8, BufferKind::input, Dtype::f64),
                 m = t.tensor("m", 1, 8, BufferKind::optimizer_state),
                 v = t.tensor("v", 1, 8, BufferKind::optimizer_state);
  const View shard{w, 0, 0, Expr(Coord::dp) * Expr(8), 1, 8, 8};
  const OpId gather = t.op("gather", 2, Collective{CollectiveKind::all_gather, 0, 16},
                           {{AccessMode::read, shard}, {AccessMode::write, t.whole(w)}});
  const OpId use = t.map("use", 0, w, y, {finish_of(gather)});
  t.fill("grad", 0, g);
  t.fill("no norm", 0, norm);
  const OpId update = t.op("update", 0, AdamW{8, {}, 2, false},
                           {{AccessMode::read, t.whole(g)},
                            {AccessMode::read, t.whole(norm)},
                            {AccessMode::read, t.whole(hyper)},
                            {AccessMode::accumulate, shard},
                            {AccessMode::accumulate, t.whole(m)},
                            {AccessMode::accumulate, t.whole(v)}});
  t.waits_of(gather) = {finish_of(update, 1)};
  CHECK(wrong_value(t.schedule) == "");
  auto& order = t.schedule.programs[0].order;
  SECTION("read before they are gathered") {
    std::swap(order[0], order[1]);
    t.waits_of(use).clear();
    t.waits_of(gather) = {finish_of(use)};
    t.waits_of(update) = {finish_of(gather)};
    CHECK_THAT(wrong_value(t.schedule),
               Contains("use mb 0 (lane compute) reads w[0,16), which has not the update of the step before"));
  }
  SECTION("never gathered") {
    order.erase(order.begin());
    t.waits_of(use).clear();
    CHECK_THAT(wrong_value(t.schedule), Contains("which has not the update of the step before"));
  }
  SECTION("read after the update") {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    t.waits_of(update) = {finish_of(gather)};
    t.waits_of(use).clear();
    t.waits_of(gather) = {finish_of(use, 1)};
    CHECK_THAT(wrong_value(t.schedule), Contains("reads w[0,16), which this step's update has changed already"));
  }
}

TEST_CASE("instances of an input lie apart") {
  TinySchedule t;
  const TensorId tokens = t.tensor("tokens", 1, 16, BufferKind::input), y = t.tensor("y", 1, 16);
  t.map("use", 0, tokens, y);
  t.schedule.storages[0].elements = 32;
  t.schedule.tensors[tokens].slots = 2;
  t.schedule.tensors[tokens].places.push_back({0, 16});
  CHECK(verify(t.schedule).empty());
  t.schedule.tensors[tokens].places[1].offset = 8;
  REQUIRE(verify(t.schedule).size() == 1);
  CHECK_THAT(verify(t.schedule).front().message, Contains("instances of an input lie on each other"));
}
