// The verifier's findings about ranks that are folded away must equal its findings without folding.
#include <catch2/catch.hpp>

#include "model/schedule/plan.hpp"
#include "model/verify/verify.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// Adds a view that names the rank, which keeps all ranks apart and has no other effect.
void forbid_folding(TinySchedule& t) {
  const std::int64_t ranks = t.schedule.mesh.ranks();
  const TensorId x = t.tensor("of each rank", 1, 4, BufferKind::parameter);
  Tensor& tensor = t.schedule.tensors[x];
  tensor.slots = ranks;
  tensor.places.assign(static_cast<std::size_t>(ranks), tensor.places.front());
  View view = t.whole(x);
  view.slot = Coord::dp;
  t.map("read", 0, view, t.whole(t.tensor("copy", 1, 4)));
}

Violation::Kind kind_of_first(const Schedule& schedule) {
  const std::vector<Violation> found = verify(schedule);
  REQUIRE_FALSE(found.empty());
  INFO(found.front().message);
  return found.front().kind;
}

View shard(TensorId tensor, std::int64_t elements) {
  return {tensor, 0, 0, Expr(Coord::dp) * Expr(elements), 1, elements, elements};
}

}  // namespace

// Rank 0 hears from rank 3 what rank 3 knows of rank 2. That is nothing about rank 0, although rank 1 stands for rank
// 3.
TEST_CASE("a message from a rank that is folded away says nothing about the representative") {
  for (const std::int64_t per_device : {1, 2, 4}) {
    INFO(per_device << " ranks a device");
    TinySchedule t(4, per_device);
    for (const char* name : {"m0", "m1"}) t.schedule.lanes.push_back({name, LaneKind::communication, 0});
    const auto buffer = [&](const char* name) { return t.tensor(name, 1, 8, BufferKind::workspace); };
    const TensorId x = buffer("x"), z = buffer("z"), y = buffer("y"), w = buffer("w");
    const OpId fill = t.fill("z.fill", 1, z), a = t.fill("a", 0, x);
    const auto message = [&](const char* name, LaneId lane, bool is_send, std::uint32_t communicator, TensorId tensor,
                             std::vector<Edge> waits) {
      return t.op(name, lane, PointToPoint{is_send, communicator, is_send ? 1 : -1, 8},
                  {{is_send ? AccessMode::read : AccessMode::write, t.whole(tensor)}}, std::move(waits));
    };
    const OpId s1 = message("s1", 2, true, 0, z, {finish_of(a), finish_of(fill)});
    const OpId r1 = message("r1", 3, false, 0, y, {});
    const OpId s2 = message("s2", 4, true, 1, y, {finish_of(r1)});
    const OpId r2 = message("r2", 5, false, 1, w, {});
    const OpId b = t.fill("b", 1, x, {finish_of(r2)});
    t.waits_of(a).push_back(finish_of(b, 1));
    t.waits_of(fill).push_back(finish_of(s1, 1));
    t.waits_of(r1).push_back(finish_of(s2, 1));
    CHECK(kind_of_first(t.schedule) == Violation::Kind::race);
  }
}

TEST_CASE("in place on other ranks only, leaving a tensor on other ranks only, and members on some ranks only") {
  for (const bool is_folded : {true, false}) {
    INFO((is_folded ? "folded" : "all ranks"));
    TinySchedule t(4);
    if (!is_folded) forbid_folding(t);
    REQUIRE(fold_ranks(t.schedule).representatives().size() == (is_folded ? 1 : 4));
    SECTION("a shard that is apart from the whole on the first rank, and a wrong slice of it on the second") {
      const TensorId shards = t.tensor("shards", 1, 64, BufferKind::workspace), whole = t.tensor("whole", 1, 64);
      t.schedule.storages[t.schedule.tensors[shards].places[0].storage].elements = 80;
      t.schedule.tensors[whole].places = {{t.schedule.tensors[shards].places[0].storage, 16}};
      const OpId fill = t.fill("fill", 1, shards);
      const OpId gather =
          t.op("gather", 2, Collective{CollectiveKind::all_gather, 0, 64},
               {{AccessMode::read, shard(shards, 16)}, {AccessMode::write, t.whole(whole)}}, {finish_of(fill)});
      t.waits_of(fill).push_back(finish_of(gather, 1));
      CHECK(kind_of_first(t.schedule) == Violation::Kind::malformed);
    }
    SECTION("two tensors at one place; the smaller one ends before the last rank's part") {
      const TensorId large = t.tensor("large", 1, 64), small = t.tensor("small", 1, 32);
      t.schedule.tensors[small].places = t.schedule.tensors[large].places;
      t.fill("fill", 1, shard(large, 16));
      t.map("map", 1, shard(small, 16), t.whole(t.tensor("y", 1, 16)));
      CHECK(kind_of_first(t.schedule) == Violation::Kind::malformed);
    }
    SECTION("an input whose last instance only the last rank leaves") {
      View view = shard(t.tensor("input", 1, 64, BufferKind::input), 16);
      view.offset = view.offset * Expr(Coord::micro_batch);
      const OpId map = t.map("map", 0, view, t.whole(t.tensor("y", 1, 16)));
      t.call(map, 1);
      t.call(map, 2);
      CHECK(kind_of_first(t.schedule) == Violation::Kind::malformed);
    }
  }
  TinySchedule some(4);
  some.schedule.communicators[0].subset = {0, 2};
  some.schedule.communicators[0].size = 2;
  some.all_reduce("sum", 2, some.tensor("x", 1, 8, BufferKind::parameter));
  CHECK(kind_of_first(some.schedule) == Violation::Kind::malformed);
}

TEST_CASE("a shard of one rank that overlaps another's, or reads what nobody wrote there, is found") {
  TinySchedule t(4);
  const TensorId x = t.tensor("x", 1, 64, BufferKind::workspace);
  const OpId fill = t.fill("fill", 0, shard(x, 16));
  const OpId use = t.map("use", 1, shard(x, 16), t.whole(t.tensor("y", 1, 16)), {finish_of(fill)});
  t.waits_of(fill).push_back(finish_of(use, 1));
  CHECK(verify(t.schedule).empty());
  View& read = t.schedule.operations[use].accesses[0].view;
  read.offset = select_le(Coord::dp, 1, read.offset, Expr(Coord::dp) * Expr(16) - Expr(1));
  CHECK(kind_of_first(t.schedule) == Violation::Kind::uninitialised_read);
}
