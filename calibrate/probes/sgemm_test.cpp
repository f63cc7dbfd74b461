#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "calibrate/probes/probes.hpp"

namespace stretto::calibrate {

TEST_CASE("sgemm reads how fast a core is, spinning threads how much of it others take", "[calibrate]") {
  SgemmYardstick yardstick(1, 1);
  DetourProbe detours(1);
  const double alone_GFLOPs = yardstick.run_GFLOPs();
  CHECK(alone_GFLOPs > 0);
  std::atomic<bool> is_over = false;
  {
    // Other threads that leave a core a third of its time, or less.
    std::vector<std::jthread> others;
    for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i)
      others.emplace_back([&] {
        while (!is_over) {
        }
      });
    CHECK(yardstick.run_GFLOPs() > 0.55 * alone_GFLOPs);
    for (int i = 0; i < 5; ++i) detours.add(detours.run());
    is_over = true;
  }
  CHECK(detours.disturbance().share > 0.3);
}

}  // namespace stretto::calibrate
