#include "model/verify/dataflow.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "model/verify/symbolic.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// Two ranks: a gradient is filled, reduced and scattered, the shard updated, the parameter gathered.
struct Update : TinySchedule {
  static constexpr std::int64_t kElements = 16, kShard = 8;
  TensorId w = tensor("w", 1, kElements, BufferKind::parameter), grad = tensor("grad.w", 1, kElements);
  TensorId m = tensor("m", 1, kShard, BufferKind::optimizer_state);
  TensorId v = tensor("v", 1, kShard, BufferKind::optimizer_state);
  TensorId norm = tensor("norm", 1, 1, BufferKind::scalar, Dtype::f64);
  TensorId hyper = tensor("hyper", 1, 8, BufferKind::input, Dtype::f64);
  OpId zero, square, scatter, zero_norm, sum, adamw, gather;

  Update() {
    zero = fill("zero", 0, grad);
    square = op("add", 0, Elementwise{ElementwiseFn::add, 1, kElements},
                {{AccessMode::read, whole(w)}, {AccessMode::read, whole(grad)}, {AccessMode::write, whole(grad)}});
    scatter = op("scatter", 2, Collective{CollectiveKind::reduce_scatter, 0, kElements},
                 {{AccessMode::read, whole(grad)}, {AccessMode::write, shard(grad)}}, {finish_of(square)});
    zero_norm = fill("zero norm", 0, norm);
    sum = op("sum", 0, SumSquares{kShard}, {{AccessMode::read, shard(grad)}, {AccessMode::accumulate, whole(norm)}},
             {finish_of(scatter)});
    adamw = op("adamw", 0, AdamW{kShard, {{0, 4}}, 2, false, Coord::dp},
               {{AccessMode::read, shard(grad)},
                {AccessMode::read, whole(norm)},
                {AccessMode::read, whole(hyper)},
                {AccessMode::accumulate, shard(w)},
                {AccessMode::accumulate, whole(m)},
                {AccessMode::accumulate, whole(v)}});
    gather = op("gather", 2, Collective{CollectiveKind::all_gather, 0, kElements},
                {{AccessMode::read, shard(w)}, {AccessMode::write, whole(w)}}, {finish_of(adamw)});
    waits_of(zero).push_back(finish_of(gather, 1));
    schedule.state.arrays = {{"w", 1, kElements, 0, 0, {{0, 1, kElements, kElements}}}};
    schedule.state.buckets = {{0, Expr(Coord::dp) * Expr(kShard), kShard}};
    schedule.state.buckets[0].window(StatePart::parameters) = {schedule.tensors[w].places[0].storage, 0};
    schedule.state.pieces = {{0, 0, -1, 0}};
  }
  View shard(TensorId id) const {
    return {id, 0, 0, Expr(Coord::dp) * Expr(kShard), 1, std::int64_t{kShard}, std::int64_t{kShard}};
  }
  std::vector<std::string> changed() const { return verify_equivalent(Update().schedule, schedule, SumOrder::same); }
};

}  // namespace

TEST_CASE("runs merge where they continue one another") {
  const Runs w = {{10, 7, 0}};
  Runs copy = slice(w, 0, 4);
  append(copy, slice(w, 4, 6));
  CHECK(fingerprint(copy) == fingerprint(w));
  Runs swapped = slice(w, 4, 6);
  append(swapped, slice(w, 0, 4));
  CHECK(swapped.size() == 2);
  CHECK(fingerprint(swapped) != fingerprint(w));
  overwrite(copy, 3, {{2, 0, Run::kUniform}});
  REQUIRE(copy.size() == 3);
  CHECK(length_of(copy) == 10);
  CHECK(copy[2].index == 5);
  overwrite(copy, 3, slice(w, 3, 2));
  CHECK(fingerprint(copy) == fingerprint(w));
}

TEST_CASE("element by element: the place in the array counts, the place in memory does not") {
  const Runs g = {{10, 7, 0}}, w = {{10, 9, 0}};
  const auto map = [](const Runs& a, const Runs& b) { return map_elements(1, std::vector<Runs>{a, b}); };
  Runs halves = map(slice(g, 0, 4), slice(w, 0, 4));
  append(halves, map(slice(g, 4, 6), slice(w, 4, 6)));
  CHECK(fingerprint(halves) == fingerprint(map(g, w)));
  CHECK(fingerprint(map(slice(g, 0, 4), slice(w, 1, 4))) != fingerprint(map(slice(g, 0, 4), slice(w, 0, 4))));
  CHECK(fingerprint(map(w, g)) != fingerprint(map(g, w)));
}

TEST_CASE("sums do not depend on the order, nor sums of squares on how they are cut") {
  const Runs a = {{10, 7, 0}}, b = {{10, 9, 0}}, zero = {{10, 0, Run::kUniform}};
  const auto sum = [](std::vector<Runs> of) { return fingerprint(sum_elements(of)); };
  CHECK(sum({a, b}) == sum({b, a}));
  CHECK(sum({a, zero}) == sum({a}));
  CHECK(sum({a, a}) != sum({a}));
  CHECK(sum({zero, zero}) == fingerprint(zero));
  CHECK(sum_over(a) == sum_over(slice(a, 0, 3)) + sum_over(slice(a, 3, 7)));
  CHECK(sum_over(a) != sum_over(slice(a, 0, 9)));
  CHECK(sum_over(zero) == 0);
}

TEST_CASE("a schedule is equivalent to itself, and to itself in another legal order") {
  Update t;
  CHECK(t.changed().empty());
  std::swap(t.schedule.programs[0].order[2], t.schedule.programs[0].order[3]);  // zero norm, then scatter
  CHECK(t.changed().empty());
}

TEST_CASE("what changes the result is found") {
  Update t;
  auto& ops = t.schedule.operations;
  SECTION("an operation is lost") {
    t.schedule.programs[0].order[6].waits.clear();
    t.schedule.programs[0].order[0].waits.clear();
    t.schedule.programs[0].order.erase(t.schedule.programs[0].order.begin() +
                                       6);  // the second step reads old parameters
  }
  SECTION("the update comes before the reduction") {
    auto& order = t.schedule.programs[0].order;
    order[4].waits.clear();
    std::rotate(order.begin() + 2, order.begin() + 3, order.begin() + 6);
  }
  SECTION("a shifted view") { ops[t.sum].accesses[0].view.offset = 0; }
  SECTION("other weight decay") { std::get<AdamW>(ops[t.adamw].work).decayed = {{0, 5}}; }
  SECTION("weight decay of another shard") { std::get<AdamW>(ops[t.adamw].work).shard = 1; }
  SECTION("a sum of squares that counts less") { std::get<SumSquares>(ops[t.sum].work).copies = 2; }
  SECTION("another constant") { std::get<Fill>(ops[t.zero].work).value = 1; }
  SECTION("an operand for another") { ops[t.square].accesses[0].view = t.whole(t.grad); }
  SECTION("a smaller collective") {
    std::get<Collective>(ops[t.scatter].work).elements = 12;
    ops[t.scatter].accesses[0].view.cols = 12;
    ops[t.scatter].accesses[1].view = {t.grad, 0, 0, Expr(Coord::dp) * Expr(6), 1, 6, 6};
  }
  SECTION("a reduction of everything instead of shards") {
    ops[t.gather].work = Collective{CollectiveKind::all_reduce, 0, Update::kElements};
    ops[t.gather].accesses = {{AccessMode::accumulate, t.whole(t.w)}};
  }
  SECTION("another kind of operation") { std::get<Elementwise>(ops[t.square].work).fn = ElementwiseFn::gelu_backward; }
  CHECK_FALSE(t.changed().empty());
}

TEST_CASE("where there are master parameters, they are what is updated") {
  const auto with_master = [](double before) {
    Update t;
    const TensorId master = t.tensor("master", 1, Update::kShard, BufferKind::optimizer_state, Dtype::f64);
    Operation& update = t.schedule.operations[t.adamw];
    std::get<AdamW>(update.work).master = true;
    update.accesses[3].mode = AccessMode::write;
    update.accesses.push_back({AccessMode::accumulate, t.whole(master)});
    t.op("set master", 0, Fill{Update::kShard, before}, {{AccessMode::write, t.whole(master)}});
    std::swap(t.schedule.programs[0].order[2], t.schedule.programs[0].order.back());
    std::rotate(t.schedule.programs[0].order.begin() + 3, t.schedule.programs[0].order.end() - 1,
                t.schedule.programs[0].order.end());
    return t.schedule;
  };
  CHECK(verify_equivalent(with_master(1), with_master(1), SumOrder::same).empty());
  CHECK_FALSE(verify_equivalent(with_master(1), with_master(2), SumOrder::same).empty());
}

TEST_CASE("differences say which result") {
  DataFlow a{{{"w", 1}, {"loss", 2}}}, b{{{"w", 3}, {"other", 2}}};
  CHECK(differences(a, a).empty());
  CHECK(differences(a, b) ==
        std::vector<std::string>{"loss is missing", "w is computed in another way", "other is new"});
}

TEST_CASE("other dropout is another result") {
  const auto with = [](const Dropout& dropout) {
    Update t;
    const TensorId key = t.tensor(kDropoutKey, 1, kDropoutKeyWords, BufferKind::input, Dtype::i32);
    Operation& operation = t.schedule.operations[t.square];
    operation.work = dropout;
    operation.accesses = {
        {AccessMode::read, t.whole(t.w)}, {AccessMode::read, t.whole(key)}, {AccessMode::write, t.whole(t.grad)}};
    return t.schedule;
  };
  const Dropout dropout{Pass::forward, 1, Update::kElements, 1, 0.25, DropoutSite::residual_1};
  Dropout other_site = dropout, other_probability = dropout, other_tokens = dropout, gradient = dropout;
  other_site.site = DropoutSite::residual_2;
  other_probability.probability = 0.5;
  other_tokens.first_row = 2;
  gradient.pass = Pass::dgrad;
  CHECK(verify_equivalent(with(dropout), with(dropout), SumOrder::same).empty());
  for (const Dropout& other : {other_site, other_probability, other_tokens, gradient})
    CHECK_FALSE(verify_equivalent(with(dropout), with(other), SumOrder::same).empty());
}
