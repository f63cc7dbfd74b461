#include "report/memory.hpp"

#include <catch2/catch.hpp>

using namespace stretto;

TEST_CASE("memory of a role adds up to the plan's peak", "[memory]") {
  Schedule schedule;
  schedule.storages = {
      {"p", Dtype::f32, BufferKind::parameter, 100}, {"m", Dtype::f32, BufferKind::optimizer_state, 200},
      {"tokens", Dtype::i32, BufferKind::input, 10}, {"loss", Dtype::f32, BufferKind::scalar, 1},
      {"g", Dtype::f32, BufferKind::gradient, 100},  {"a", Dtype::f32, BufferKind::activation, 100}};
  schedule.programs = {{"stage 0", {}}, {"stage 1", {}}};
  RolePlan all;
  all.offset_bytes.assign(schedule.storages.size(), 0);
  all.bytes = 1800;  // gradient and activation share 400 bytes; the rest is alignment
  RolePlan last = all;
  last.offset_bytes[0] = RolePlan::kNowhere;
  last.bytes = 1400;
  const MemoryPlan plan{{all, last}};
  const std::vector<MemoryUse> uses = memory_use(schedule, plan);
  REQUIRE(uses.size() == 2);
  CHECK(uses[0].parameters == 400);
  CHECK(uses[0].optimizer_state == 800);
  CHECK(uses[0].inputs_and_scalars == 44);
  CHECK(uses[0].reused == 556);
  CHECK(uses[0].peak() == all.bytes);
  CHECK(uses[1].role == "stage 1");
  CHECK(uses[1].parameters == 0);
  CHECK(uses[1].peak() == last.bytes);
}
