#include "model/schedule/state.hpp"

#include <catch2/catch.hpp>
#include <tuple>

#include "model/schedule/schedule.hpp"

namespace stretto {
namespace {

using FlatRun = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // begin, elements, offset

std::vector<FlatRun> runs(const Schedule& schedule, std::int64_t rank, StatePart part, Share share) {
  std::vector<FlatRun> list;
  for (const StateRun& run : runs_of(schedule, schedule.state.pieces.front(), part, rank, share))
    list.emplace_back(run.begin, run.elements, run.offset);
  return list;
}

// One array of 4 × 6, at element 2 of a bucket; storages: the parameters, and adam_m.
Schedule make(std::vector<MeshAxis> axes, ArrayCut cut, StateBucket bucket, Expr kept_from, std::int64_t kept,
              std::int64_t whole) {
  Schedule schedule;
  schedule.mesh = Mesh(std::move(axes));
  schedule.programs = {{"rank", {}}};
  schedule.storages = {{"parameters", Dtype::f32, BufferKind::parameter, whole},
                       {"adam_m", Dtype::f32, BufferKind::optimizer_state, kept}};
  bucket.window(StatePart::parameters) = {0, whole == kept ? kept_from : Expr(0)};
  bucket.window(StatePart::adam_m) = {1, kept_from};
  schedule.state = {{{"w", 4, 6, 0, 0, {std::move(cut)}}}, {std::move(bucket)}, {{0, 0, -1, 2}}};
  return schedule;
}

}  // namespace

TEST_CASE("state: columns of a tensor-parallel rank, whose data-parallel shard ends within a row", "[state]") {
  const Expr shard = Expr(Coord::dp) * Expr(9);
  const Schedule schedule =
      make({{Coord::dp, 2}, {Coord::tp, 2}}, {Expr(Coord::tp) * Expr(3), 4, 3, 6}, {0, shard, 9, {}}, shard, 9, 18);
  CHECK(runs(schedule, 1, StatePart::parameters, Share::held) ==
        std::vector<FlatRun>{{3, 3, 2}, {9, 3, 5}, {15, 3, 8}, {21, 3, 11}});
  CHECK(runs(schedule, 1, StatePart::parameters, Share::owned) ==
        std::vector<FlatRun>{{3, 3, 2}, {9, 3, 5}, {15, 1, 8}});
  CHECK(runs(schedule, 2, StatePart::parameters, Share::owned) == std::vector<FlatRun>{{13, 2, 9}, {18, 3, 11}});
  CHECK(runs(schedule, 2, StatePart::adam_m, Share::held) == std::vector<FlatRun>{{13, 2, 0}, {18, 3, 2}});
  CHECK(runs(schedule, 0, StatePart::gradients, Share::held).empty());
}

TEST_CASE("state: no storage holds a whole parameter, and the optimizer is cut over two axes", "[state]") {
  const Expr shard = (Expr(Coord::dp) * Expr(2) + Expr(Coord::cp)) * Expr(7);
  const Schedule schedule = make({{Coord::dp, 2}, {Coord::cp, 2}}, {0, 1, 30, 30}, {0, shard, 7, {}}, shard, 7, 7);
  const std::vector<FlatRun> parts[] = {{{0, 5, 2}}, {{5, 7, 0}}, {{12, 7, 0}}, {{19, 5, 0}}};  // the rest is padding
  for (std::int64_t rank = 0; rank < 4; ++rank)
    for (const StatePart part : {StatePart::parameters, StatePart::adam_m})
      for (const Share share : {Share::held, Share::owned}) CHECK(runs(schedule, rank, part, share) == parts[rank]);
}

TEST_CASE("state: replicas of a shard, and a program that does not have the bucket", "[state]") {
  // dp is cut in two: shards over cp, replicas over dp.
  const Expr shard = Expr(Coord::cp) * Expr(13);
  Schedule schedule =
      make({{Coord::pp, 2}, {Coord::dp, 2}, {Coord::cp, 2}}, {0, 1, 24, 24}, {1, shard, 13, {}}, shard, 13, 26);
  schedule.programs.push_back({"stage 1", {}});
  CHECK(runs(schedule, 0, StatePart::parameters, Share::held).empty());
  CHECK(runs(schedule, 5, StatePart::parameters, Share::owned) == std::vector<FlatRun>{{11, 13, 13}});
  CHECK(runs(schedule, 5, StatePart::adam_m, Share::owned) == runs(schedule, 7, StatePart::adam_m, Share::held));
}

}  // namespace stretto
