#include "model/schedule/residency.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace stretto {
namespace {

// Four ranks, two a device; lane 1 carries communicators of 3 and 2 channels, lane 2 one of 4.
Schedule schedule_with_channels() {
  Schedule schedule;
  schedule.mesh = Mesh({{Coord::dp, 4}});
  schedule.placement.ranks_per_device = 2;
  schedule.lanes.resize(3);
  schedule.communicators = {{"dp", {Coord::dp}, CommEngine::sm, 3, 4},
                            {"tp", {Coord::dp}, CommEngine::sm, 2, 4},
                            {"pp", {Coord::dp}, CommEngine::sm, 4, 4}};
  for (std::uint32_t c = 0; c < 3; ++c) {
    Operation operation;
    operation.work = Collective{CollectiveKind::all_reduce, c, 8};
    operation.lane = c < 2 ? 1 : 2;
    schedule.operations.push_back(operation);
  }
  return schedule;
}

std::string refusal(const Schedule& schedule, std::int64_t cores) {
  try {
    check_residency(schedule, cores);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a device needs the most that each lane of its ranks holds, and cores to compute", "[residency]") {
  Schedule schedule = schedule_with_channels();
  CHECK(cores_needed(schedule) == 2 * (3 + 4) + 1);
  schedule.placement.threads_per_rank = 2;
  CHECK(cores_needed(schedule) == 2 * (3 + 4) + 2);
  schedule.placement.ranks_per_device = 8;  // more channels than cores
  CHECK(cores_needed(schedule) == 4 * (3 + 4) + 2);
}

TEST_CASE("only kernels that wait for others are resident", "[residency]") {
  Schedule schedule = schedule_with_channels();
  CHECK(resident_cores(schedule.communicators[0]) == 3);
  schedule.communicators[0].engine = CommEngine::nic;
  CHECK(cores_needed(schedule) == 2 * (2 + 4) + 1);
  schedule.communicators[1].engine = CommEngine::copy_engine;
  schedule.communicators[2].size = 1;
  CHECK(cores_needed(schedule) == 1);
  CHECK(refusal(schedule, 1).empty());
}

TEST_CASE("channels that could take all cores are refused by name", "[residency]") {
  const Schedule schedule = schedule_with_channels();
  CHECK(refusal(schedule, 15).empty());
  CHECK(
      refusal(schedule, 14) ==
      "channels (dp 3, pp 4) of 2 ranks can hold 14 cores of a device at once and compute needs 1; expected [cluster] "
      "cores_per_device of at least 15, got 14: raise it, or lower max_ctas");
}

}  // namespace stretto
