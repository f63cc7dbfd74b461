#include "report/profile.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/test_program.hpp"

namespace stretto {
namespace {

// A schedule with a tensor for each of `shapes`, on which operations are written.
struct Operands {
  Schedule schedule;
  Access access(AccessMode mode, std::int64_t rows, std::int64_t cols, Dtype dtype) {
    const auto id = static_cast<std::uint32_t>(schedule.storages.size());
    schedule.storages.push_back({"s", dtype, BufferKind::activation, rows * cols});
    Tensor tensor;
    tensor.rows = rows;
    tensor.cols = cols;
    tensor.places = {{id, 0}};
    schedule.tensors.push_back(tensor);
    Access access{mode, {}};
    access.view.tensor = id;
    access.view.rows = rows;
    access.view.cols = access.view.ld = cols;
    return access;
  }
};

const Peak kPeak{1000, 10, "made up"};  // 1 TFLOP/s, 10 GB/s

TEST_CASE("a GEMM's floor is its arithmetic or its operands") {
  Operands o;
  const Operation wide{
      "a",
      Gemm{64, 32, 4096, false, true},
      0,
      Phase::forward,
      {o.access(AccessMode::read, 64, 4096, Dtype::bf16), o.access(AccessMode::read, 32, 4096, Dtype::bf16),
       o.access(AccessMode::write, 64, 32, Dtype::bf16)}};
  // 2 · 64 · 32 · 4096 FLOPs take 16.8 us, (64 + 32) · 4096 · 2 + 64 · 32 · 2 bytes 79.1 us.
  const Floor floor = floor_of(o.schedule, wide, kPeak);
  CHECK(floor.us == Approx(79.0528));
  CHECK(floor.is_memory);
  const Floor arithmetic = floor_of(o.schedule, wide, {1000, 0, ""});
  CHECK(arithmetic.us == Approx(16.777216));
  CHECK_FALSE(arithmetic.is_memory);
  CHECK(floor_of(o.schedule, wide, {}).us == 0);
}

TEST_CASE("what is read and written is moved twice, of an embedding's table what is looked up") {
  Operands o;
  const Operation sum{
      "s",
      Elementwise{ElementwiseFn::add, 10, 100},
      0,
      Phase::forward,
      {o.access(AccessMode::read, 10, 100, Dtype::f32), o.access(AccessMode::accumulate, 10, 100, Dtype::f32)}};
  CHECK(floor_of(o.schedule, sum, kPeak).us == Approx(3 * 4000 / 10e3));
  Embedding lookup;
  lookup.rows = 8;
  lookup.cols = 16;
  lookup.vocab = 50'000;
  const Operation embedding{
      "e",
      lookup,
      0,
      Phase::forward,
      {o.access(AccessMode::read, 8, 1, Dtype::i32), o.access(AccessMode::read, 50'000, 16, Dtype::f32),
       o.access(AccessMode::write, 8, 16, Dtype::f32)}};
  CHECK(floor_of(o.schedule, embedding, kPeak).us == Approx((32 + 2 * 8 * 16 * 4) / 10e3));
}

TEST_CASE("a profile sums calls over a step and takes medians over repeats") {
  test::HandMade made;
  made.compute(0, 0, 10'000'000);
  made.add(1, 10'000'000, 10'000'000, 12'000'000, 42'000'000, {{0}});
  made.timeline.step_end = 42'000'000;
  Timeline slow = made.timeline, slower = made.timeline;
  slow.rows[0].end = 14'000'000;
  slower.rows[0].end = 30'000'000;
  Peak unknown;
  const std::vector<ProfiledOperation> operations =
      profile_operations(made.schedule, {made.program}, {made.timeline, slow, slower}, unknown);
  REQUIRE(operations.size() == 2);
  CHECK(operations[0].is_communication);
  CHECK(operations[0].us == Approx(30));
  CHECK(operations[0].total_ms == Approx(0.03));
  CHECK(operations[1].us == Approx(14));
  CHECK(operations[1].calls == 1);

  Profile profile;
  profile.device = "a device";
  profile.step_ms = {1, 2, 3};
  profile.timed_step_ms = {2, 2.2, 2.4};
  profile.path_compute_ms = 1.5;
  profile.path_communication_ms = 0.4;
  profile.operations = operations;
  CHECK(profile.overhead_pct() == Approx(10));
  CHECK(profile.step_over_path() == Approx(2 / 1.9));
  CHECK_THAT(profile_text(profile), Catch::Matchers::Contains("no floors: what a device can do at most is not known"));
  CHECK(profile_json(profile)["operations"][0]["floor_us"].is_null());
}

TEST_CASE("no floor lies above what was measured: a peak that an operation beats was none") {
  test::HandMade made;
  made.compute(0, 0, 10'000'000);
  made.compute(10'000'000, 10'000'000, 40'000'000);
  made.timeline.step_end = 40'000'000;
  // 2 Mflop in 10 and in 30 us: 200 and 67 GFLOP/s.
  for (Operation& operation : made.schedule.operations) operation.work = Gemm{100, 100, 100, false, false, false};
  for (const double given_GFLOPs : {50.0, 100.0, 400.0}) {
    Peak peak{given_GFLOPs, 0, "a slow moment"};
    const auto operations = profile_operations(made.schedule, {made.program}, {made.timeline}, peak);
    CHECK(peak.GFLOPs == Approx(std::max(given_GFLOPs, 200.0)));
    CHECK(peak.source == (given_GFLOPs < 200 ? "a slow moment; an operation did more" : "a slow moment"));
    for (const ProfiledOperation& p : operations) {
      CHECK(p.floor.us == Approx(2e6 / peak.GFLOPs * 1e-3));
      CHECK(p.floor.us <= p.us * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace stretto
