// Tests that playing solo calls, which one switch controls (sim/call_cache.hpp), changes no byte of the results for
// schedules of real scenarios.
#include <catch2/catch.hpp>
#include <cstring>

#include "base/rng.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

std::string bytes_of(const sim::SimResult& result) {
  std::string bytes = std::to_string(result.step) + " " + std::to_string(result.operations) + " " +
                      std::to_string(result.steady) + " " + std::to_string(result.timeline.step_begin);
  const std::vector<TimelineRow>& rows = result.timeline.rows;
  const auto* begin = reinterpret_cast<const char*>(rows.data());
  return bytes.append(begin, begin + rows.size() * sizeof(TimelineRow));
}

}  // namespace

TEST_CASE("real schedules are simulated to the same bytes whether solo calls are played or not", "[sim]") {
  struct {
    Layout layout;
    const char* mode;
  } const cases[] = {{{2, 1, false}, "overlap_grad_reduce"},
                     {{2, 1, false}, "overlap_param_gather"},
                     {{1, 2, true}, "tp_comm_overlap"},
                     {{1, 3, true}, "tp_comm_ring_exchange"},
                     {{1, 2, false}, "async_tensor_model_parallel_allreduce"},
                     {{2, 2, true, 2, 1}, "plain"},
                     {{1, 2, true, 3, 2}, "overlap_p2p_comm"}};
  for (const auto& [layout, mode] : cases)
    for (const bool has_cores : {false, true}) {
      CAPTURE(layout.text(), mode, has_cores);
      Ideal ideal(layout_scenario(layout, mode, false));
      for (OpId op = 0; op < ideal.schedule.operations.size(); ++op) {
        ideal.set(op, static_cast<Time>(1000 + random_bits(1, 0, op) % 100'000));
        if (has_cores) ideal.costs.compute[op].cores = 1;
      }
      ideal.costs.cores_per_device = has_cores ? 1 : 0;
      ideal.costs.op_overhead = 3, ideal.costs.wake = 50, ideal.costs.timer_overshoot = 7;
      const std::string open = bytes_of(ideal.run());
      sim::SimOptions closed;
      closed.caches_solo_calls = false;
      REQUIRE(open == bytes_of(ideal.run(closed)));
    }
}

}  // namespace stretto::testing
