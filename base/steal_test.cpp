#include "base/steal.hpp"

#include <catch2/catch.hpp>
#include <chrono>

using namespace stretto;

TEST_CASE("the share that was stolen is a share", "[steal]") {
  StealClock clock;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
  while (std::chrono::steady_clock::now() < end) {
  }
  const double share = clock.share_since_last();
  CHECK(share >= 0);
  CHECK(share <= 1);
}

TEST_CASE("without repeats left, everything runs once and is kept", "[steal]") {
  Undisturbed undisturbed(0);
  int runs = 0;
  for (int i = 0; i < 5; ++i) undisturbed([&] { ++runs; });
  CHECK(runs == 5);
  CHECK(undisturbed.runs() == 5);
  CHECK(undisturbed.set_aside() == 0);
}
