#include "model/overlap/serial_reductions.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "model/build_schedule.hpp"
#include "model/schedule/gradient_reduction.hpp"

namespace stretto {

TEST_CASE("with one hardware queue a reduction of gradients ends before the computation issued after it", "[overlap]") {
  const auto schedule_of = [](const std::string& set) {
    return build_schedule(parse_scenario(
        "platform = \"h100-sxm\"\nprofile = \"megatron-core-te\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 4\n"
        "[parallel]\ndata_parallel_size = 2\ntensor_model_parallel_size = 2\n[training]\nglobal_batch_size = 4\n"
        "[overlap]\noverlap_grad_reduce = true\nbucket_size = 300_000_000\n",
        "s", {set}));
  };
  // Returns the reductions for whose end computation of the backward pass waits.
  const auto awaited = [](const Schedule& schedule) {
    std::set<OpId> reductions;
    for (const Call& call : schedule.programs.front().order) {
      const Operation& first = schedule.operations[schedule.blocks[call.block].ops[call.first]];
      if (first.phase != Phase::dgrad && first.phase != Phase::wgrad) continue;
      for (const Edge& edge : call.waits)
        if (edge.kind == EdgeKind::finish_start && reduces_gradients(schedule, schedule.operations[edge.on.op]))
          reductions.insert(edge.on.op);
    }
    return reductions;
  };
  std::set<OpId> all;
  const Schedule one = schedule_of("cluster.cuda_device_max_connections=1");
  for (OpId id = 0; id < one.operations.size(); ++id)
    if (reduces_gradients(one, one.operations[id])) all.insert(id);
  REQUIRE(all.size() > 1);
  CHECK(awaited(one).size() > 1);  // the last ones come after the backward pass
  CHECK(awaited(schedule_of("cluster.cuda_device_max_connections=8")).empty());
}

}  // namespace stretto
