#include "report/memory.hpp"

#include <catch2/catch.hpp>

using namespace stretto;

namespace {

// Two stages; the second has no parameters.
struct Planned {
  Schedule schedule;
  MemoryPlan plan;
  Planned() {
    schedule.storages = {
        {"p", Dtype::f32, BufferKind::parameter, 100}, {"m", Dtype::f32, BufferKind::optimizer_state, 200},
        {"tokens", Dtype::i32, BufferKind::input, 10}, {"loss", Dtype::f32, BufferKind::scalar, 1},
        {"g", Dtype::f32, BufferKind::gradient, 100},  {"a", Dtype::f32, BufferKind::activation, 100},
        {"w", Dtype::f32, BufferKind::workspace, 100}};
    schedule.programs = {{"stage 0", {}}, {"stage 1", {}}};
    RolePlan all;
    // The second half of the activation shares bytes with the gradient; the workspace shares bytes with the
    // activation's first half and begins before it.
    all.offset_bytes = {0, 400, 1200, 1280, 2000, 1800, 1600};
    all.bytes = 2432;
    RolePlan last = all;
    last.offset_bytes[0] = RolePlan::kNowhere;
    last.bytes = 2400;
    plan = {{all, last}};
  }
};

}  // namespace

TEST_CASE("memory of a role adds up to the plan's peak", "[memory]") {
  const Planned planned;
  const std::vector<MemoryUse> uses = memory_use(planned.schedule, planned.plan);
  REQUIRE(uses.size() == 2);
  CHECK(uses[0].parameters == 400);
  CHECK(uses[0].optimizer_state == 800);
  CHECK(uses[0].inputs_and_scalars == 44);
  CHECK(uses[0].gradients == 400);  // 2000 to 2400
  // 1800 to 2000: the other bytes count for the gradient
  CHECK(uses[0].activations == 200);
  CHECK(uses[0].workspace == 2432 - 400 - 800 - 44 - 400 - 200);  // 1600 to 1800, and the bytes that no storage has
  CHECK(uses[0].peak() == 2432);
  CHECK(uses[1].role == "stage 1");
  CHECK(uses[1].parameters == 0);
  CHECK(uses[1].peak() == 2400);
}

TEST_CASE("a plan fits when the fullest role and what is reserved do", "[memory]") {
  const Planned planned;
  DeviceMemory memory{memory_use(planned.schedule, planned.plan), 1, 3000, {{"NCCL", 468, "published", ""}}};
  memory.beside.push_back({"CUDA context", 100, "published", ""});
  CHECK(memory.fullest() == 0);
  CHECK(memory.free_bytes() == 0);
  CHECK(memory.fits());
  CHECK(memory_text(memory) ==
        "2.375 KiB a rank, 568 B reserved of 2.930 KiB; fits, 0 B are free on stage 0, the fullest");
  ++memory.beside.front().bytes;
  CHECK_FALSE(memory.fits());
  CHECK_THAT(memory_text(memory), Catch::Matchers::Contains("DOES NOT FIT, 1 B too much"));
  memory.ranks_per_device = 2;
  CHECK(memory.free_bytes() == 3000 - 569 - 2 * 2432);
  CHECK(memory_table(memory).rows() == 4);
  CHECK_THAT(memory_table(memory).text(), Catch::Contains("NCCL, published"));
  CHECK(memory_text({}) == "–");
}
