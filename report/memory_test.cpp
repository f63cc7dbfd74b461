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
  CHECK(uses[0].taken() == 2432);
  CHECK(uses[1].role == "stage 1");
  CHECK(uses[1].parameters == 0);
  CHECK(uses[1].taken() == 2400);
}

TEST_CASE("a plan fits when the fullest role and what is reserved do", "[memory]") {
  const Planned planned;
  DeviceMemory memory{memory_use(planned.schedule, planned.plan), 1, 3000, {{"NCCL", 468, "published", ""}}};
  memory.outside_plan.push_back({"CUDA context", 100, "published", ""});
  CHECK(memory.fullest() == 0);
  CHECK(memory.free_bytes() == 0);
  CHECK(memory.fits());
  CHECK(memory_text(memory) == "2.930 KiB of 2.930 KiB a device; fits, 0 B are free on stage 0, the fullest");
  ++memory.outside_plan.front().bytes;
  CHECK_FALSE(memory.fits());
  CHECK_THAT(memory_text(memory), Catch::Matchers::Contains("DOES NOT FIT, 1 B too much"));
  memory.ranks_per_device = 2;
  CHECK(memory.free_bytes() == 3000 - 569 - 2 * 2432);
  CHECK(stages_table(memory).rows() == 2);
  CHECK_THAT(memory_table(memory).text(), Catch::Contains("NCCL"));
  CHECK(sum_of(memory.parts()) == memory.predicted_bytes());
  CHECK(memory_text({}) == "–");
}

TEST_CASE("memory is tight where its interval spans what the device has", "[memory]") {
  DeviceMemory memory{{{"rank", std::int64_t{76} << 30}}, 1, std::int64_t{80} << 30, {}};
  CHECK(memory.fit() == Fit::fits);
  memory.unsure = 0.1;
  CHECK(memory.fit() == Fit::tight);
  CHECK(memory.fits());
  CHECK(memory_text(memory, "GPU") ==
        "76.00 GiB of 80.00 GiB a GPU; TIGHT, 4.000 GiB are free; within 10 % it is 68.40 GiB to 83.60 GiB");
  memory.device_bytes = std::int64_t{70} << 30;
  CHECK(memory.fit() == Fit::tight);
  CHECK_FALSE(memory.fits());
  memory.device_bytes = std::int64_t{68} << 30;
  CHECK(memory.fit() == Fit::does_not_fit);
  CHECK(fit_of(1, 0, 0.1) == Fit::fits);  // a device that is not known
}

TEST_CASE("printed numbers add up to the printed sum", "[memory]") {
  const Unit unit{100, "hundreds", 1};
  // 1.33 + 1.33 + 1.34 = 4.00, and each rounded alone would be 1.3.
  CHECK(numbers_that_add_up({133, 133, 134}, unit) == std::vector<std::string>{"1.3", "1.3", "1.4"});
  CHECK(numbers_that_add_up({149, 149, 149}, unit) == std::vector<std::string>{"1.5", "1.5", "1.5"});
  CHECK(numbers_that_add_up({0, 4, 4, 4, 4}, unit) == std::vector<std::string>{"0.0", "0.1", "0.1", "0.0", "0.0"});
  CHECK(numbers_that_add_up({}, unit).empty());
}
