#include "exec/cuda/memory_outside_plan.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "exec/cuda/cuda.hpp"
#include "exec/cuda/nccl_groups.hpp"
#include "tests/tiny_schedule.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Ranks with a collective on H100, 8 on a machine.
cuda::DeviceFacts h100(std::int64_t machine_ranks = 8, bool multicast = true) {
  return {132, machine_ranks, multicast};
}
TinySchedule with(CollectiveKind kind, std::int64_t ranks) {
  TinySchedule tiny(ranks);
  const TensorId in = tiny.tensor("in", 1, ranks), out = tiny.tensor("out", 1, ranks);
  tiny.op("c", 2, Collective{kind, 0, ranks},
          {{AccessMode::read, tiny.whole(in)}, {AccessMode::write, tiny.whole(out)}});
  return tiny;
}

}  // namespace

TEST_CASE("NCCL's memory: channels by the buffers of their connections, and of switches that add up", "[cuda]") {
  // 24 channels: 10 MiB to receive into (512 KiB, 4.69 and 4 MiB, in pages of 2 MiB) and a page to send from; 16
  // channels by 2 MiB for each of 8 GPUs.
  const TinySchedule gathers = with(CollectiveKind::all_gather, 8);
  CHECK(cuda::nccl_bytes(gathers.schedule, 0, h100(8, false)) == 24 * 12 * kMiB);
  CHECK(cuda::nccl_bytes(gathers.schedule, 0, h100()) == (24 * 12 + 16 * 2 * 8) * kMiB);
  // With a network card both ends have a buffer: 4.69 and 4 MiB, in pages.
  CHECK(cuda::nccl_bytes(gathers.schedule, 0, h100(4, false)) == 24 * 20 * kMiB);
  // There are 32 channels to each of 7 others.
  const TinySchedule all_to_all = with(CollectiveKind::all_to_all, 8);
  CHECK(cuda::nccl_bytes(all_to_all.schedule, 0, h100()) == 7 * 32 * 12 * kMiB);
  // The bytes reported for 8 H100, which the sum must not exceed: 1.06 GB before an all-to-all, 4.34 after it
  // (github.com/NVIDIA/nccl/issues/1685).
  const double context = static_cast<double>(cuda::context_outside_plan(132).bytes);
  const double before = context + static_cast<double>(cuda::nccl_bytes(gathers.schedule, 0, h100()));
  const double after = before + static_cast<double>(cuda::nccl_bytes(all_to_all.schedule, 0, h100()));
  CHECK(before * 1e-9 < 1.06);
  CHECK(before * 1e-9 > 0.85 * 1.06);
  CHECK(after * 1e-9 < 4.34);
  CHECK(after * 1e-9 > 0.85 * 4.34);
  // There are fewer channels, a smaller buffer, and none where copy engines copy from buffer to buffer.
  TinySchedule few = with(CollectiveKind::all_gather, 8);
  few.schedule.communicators[0].engine = CommEngine::sm;
  few.schedule.communicators[0].channels = 4;
  CHECK(cuda::nccl_bytes(few.schedule, 0, h100(8, false)) == 4 * 12 * kMiB);
  cuda::DeviceFacts small = h100(8, false);
  small.nccl_buffer_bytes = kMiB;
  CHECK(cuda::nccl_bytes(few.schedule, 0, small) == 4 * (8 + 2) * kMiB);
  few.schedule.communicators[0].engine = CommEngine::copy_engine;
  CHECK(cuda::nccl_bytes(few.schedule, 0, h100()) == 0);
  CHECK(cuda::nccl_bytes(with(CollectiveKind::all_gather, 1).schedule, 0, h100()) == 0);
}

TEST_CASE("NCCL's memory for messages: of each neighbour on the machine, shared between machines", "[cuda]") {
  Scenario scenario = layout_scenario(Layout{1, 1, false, 2}, "overlap_p2p_comm", false, "fp32");
  scenario.model.num_layers = 2;
  scenario.model.untie_embeddings_and_output_weights = true;
  const Schedule schedule = build_schedule(scenario);
  std::int64_t messages = 0, others = 0;
  const std::set<cuda::NcclGroup> groups = cuda::nccl_groups_of(schedule, 0);
  for (const cuda::NcclGroup& group : groups)
    (group.kind == cuda::NcclGroup::Kind::collectives ? others : messages) += 1;
  REQUIRE(messages == 4);  // forward and backward, each with two colours
  const int ctas = cuda::ctas_of_others(schedule, groups, 132);
  REQUIRE(ctas < 24);
  const std::int64_t channels = std::int64_t{1} << static_cast<int>(std::log2(ctas));
  // Rank 0 sends on one of them and receives on another.
  const std::int64_t near = channels * (2 + 10) * kMiB + others * ctas * 12 * kMiB;
  CHECK(cuda::nccl_bytes(schedule, 0, h100(2, false)) == near);
  CHECK(cuda::nccl_bytes(schedule, 0, h100(1, false)) == 2 * 64 * kMiB + others * ctas * 20 * kMiB);
}

TEST_CASE("parts of memory outside the plan have a kind and a source, and absent parts are not listed", "[cuda]") {
  const Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "bf16", 1, 4);
  const Schedule schedule = build_schedule(scenario);
  const std::vector<OutsidePlan> apart = cuda::memory_outside_plan(schedule, 0, h100(), true, true);
  REQUIRE(apart.size() == 3);
  for (const OutsidePlan& part : apart) {
    CHECK(part.bytes > 0);
    CHECK_FALSE(part.kind.empty());
    CHECK_FALSE(part.source.empty());
  }
  CHECK(apart[0].bytes == cuda::overhead_bytes(schedule, 1));
  CHECK(apart[1].what == "NCCL");
  CHECK(apart[2].bytes == 10'000 * std::ssize(bind(schedule, 0).ops));
  const std::vector<OutsidePlan> shared = cuda::memory_outside_plan(schedule, 0, h100(), false, false);
  REQUIRE(shared.size() == 1);
  CHECK(cuda::text_of(shared).starts_with("workspaces of lanes "));
}

TEST_CASE("another framework's lanes have no scratch for our layouts of codes", "[cuda]") {
  Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "bf16", 1, 4);
  const auto workspaces = [&](bool by_framework) {
    return cuda::memory_outside_plan(build_schedule(scenario), 0, h100(), true, true, by_framework)[0].bytes;
  };
  CHECK(workspaces(true) == workspaces(false));
  scenario.model.hidden_size = 128, scenario.model.num_attention_heads = 4, scenario.model.ffn_hidden_size = 256;
  scenario.training.low_precision.fp8_format = LowPrecision::Fp8Format::e4m3;
  scenario.training.low_precision.fp8_recipe = LowPrecision::Fp8Recipe::mxfp8;
  CHECK(workspaces(true) < workspaces(false));
}

}  // namespace stretto::testing
