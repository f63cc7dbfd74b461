#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "calibrate/probes/probes.hpp"

namespace stretto::calibrate {

TEST_CASE("sgemm reads how fast a core is, spinning threads how much of it others take", "[calibrate]") {
  SgemmYardstick yardstick(1, 1);
  const DetourProbe detours(1);
  std::vector<DetourProbe::Sample> turns;
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
    for (int i = 0; i < 5; ++i) turns.push_back(detours.run());
    is_over = true;
  }
  CHECK(disturbance_of(turns).share > 0.3);
}

TEST_CASE("others that compute in fewer than half of the turns do not count", "[calibrate]") {
  const DetourProbe::Sample quiet{20'000, 400, 400 * 400}, loaded{20'000, 12'000, 4 * 3'000.0 * 3'000};
  const std::vector<DetourProbe::Sample> turns = {quiet, loaded, quiet, loaded, quiet};
  CHECK(disturbance_of(turns).share == Approx(400 / 19'600.0));
  CHECK(to_us(disturbance_of(turns).length) == Approx((3 * 400 * 400 + 8 * 3'000.0 * 3'000) / 25'200 / 2));
  CHECK(disturbance_of({}).share == 0);
}

}  // namespace stretto::calibrate
