#include "exec/cuda/nccl_groups.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "model/schedule/partners.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using cuda::NcclGroup;

// The messages on each communicator from one rank to another, in the order of the calls: sent and received.
using Calls = std::map<std::tuple<NcclGroup, std::int64_t, std::int64_t>, std::vector<std::uint32_t>>;

void check(const Scenario& scenario) {
  const Schedule schedule = build_schedule(scenario);
  Calls sent, received;
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
    const BoundProgram program = bind(schedule, rank);
    const cuda::NcclGroups groups = cuda::find_nccl_groups(schedule, program);
    std::map<NcclGroup, std::set<LaneId>> lanes;
    for (const std::vector<std::uint32_t>& lane : program.lanes)
      for (std::size_t i = 0; i < lane.size();) {
        std::size_t end = i + 1;
        while (end < lane.size() && program.ops[lane[end]].joined) ++end;
        const std::vector<std::uint32_t> joined(lane.begin() + static_cast<std::ptrdiff_t>(i),
                                                lane.begin() + static_cast<std::ptrdiff_t>(end));
        i = end;
        const Work& work = program.work_of(joined.front());
        if (!is_communication(work)) continue;
        const NcclGroup& group = groups.of_op[joined.front()];
        lanes[group].insert(program.ops[joined.front()].lane);
        if (!std::holds_alternative<PointToPoint>(work)) continue;
        CHECK(groups.all.contains(group));
        for (const std::uint32_t op : cuda::call_order(schedule, program, joined)) {
          const auto& message = std::get<PointToPoint>(program.work_of(op));
          CHECK(groups.of_op[op] == group);
          const std::int64_t peer = peer_of(schedule, message, rank).rank;
          if (message.is_send)
            sent[{group, rank, peer}].push_back(message.communicator);
          else
            received[{group, peer, rank}].push_back(message.communicator);
        }
      }
    // Operations that NCCL runs one after the other must be one after the other in the schedule.
    for (const auto& [group, of_group] : lanes)
      if (groups.all.contains(group)) CHECK(of_group.size() == 1);
  }
  CHECK(sent == received);
}

}  // namespace

TEST_CASE("no two lanes are on one communicator of NCCL, and messages between two ranks meet", "[cuda]") {
  for (const Layout& layout :
       {Layout{1, 2, true}, Layout{1, 3, true}, Layout{1, 1, false, 2}, Layout{1, 1, false, 3}, Layout{2, 1, false, 4},
        Layout{1, 1, false, 5}, Layout{1, 1, false, 2, 2}, Layout{1, 1, false, 2, 3}, Layout{1, 2, true, 2, 4},
        Layout{1, 1, false, 3, 2}, Layout{1, 1, false, 4, 3}})
    for (const OverlapMode& mode : overlap_modes())
      for (const bool batched : {false, true})
        for (const std::int64_t per_group : {0, 3}) {
          Scenario scenario = layout_scenario(layout, mode.name, false, "fp32");
          if (!mode.applies(scenario.parallel)) continue;
          scenario.model.num_layers = layout.pp * layout.vp;
          scenario.training.global_batch_size = 6 * layout.pp * layout.dp;
          if (!scenario.overlap.overlap_p2p_comm) scenario.overlap.batch_p2p_comm = batched;
          if (per_group > 0 && layout.vp > 1)
            scenario.parallel.microbatch_group_size_per_vp_stage = per_group + layout.pp;
          INFO(layout.text() << ", " << mode.name << (batched ? ", batched" : ""));
          check(scenario);
        }
}

TEST_CASE("neighbours in a ring have different colours; an odd ring needs three colours", "[cuda]") {
  const auto colours = [](std::int64_t stages) {
    Scenario scenario = layout_scenario(Layout{1, 1, false, stages}, "overlap_p2p_comm", false, "fp32");
    scenario.model.num_layers = stages;
    const Schedule schedule = build_schedule(scenario);
    const std::set<NcclGroup> all = cuda::find_nccl_groups(schedule, bind(schedule, 0)).all;
    std::set<int> found;
    for (const NcclGroup& group : all)
      if (group.kind == NcclGroup::Kind::messages) found.insert(group.colour);
    return found.size();
  };
  CHECK(colours(2) == 2);
  CHECK(colours(3) == 3);
  CHECK(colours(4) == 2);
}

}  // namespace stretto::testing
