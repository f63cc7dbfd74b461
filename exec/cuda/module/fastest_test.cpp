#include "exec/cuda/module/fastest.hpp"

#include <catch2/catch.hpp>

namespace stretto::cuda {

TEST_CASE("the fastest candidate is taken, of those about as fast the first", "[cuda]") {
  using Times = std::vector<std::optional<float>>;
  const auto taken = [](const Times& times) {
    return fastest_of(times.size(), [&](std::size_t i) { return times[i]; });
  };
  CHECK(taken({3.0f, 2.0f, 1.0f}) == 2u);
  CHECK(taken({1.0f, 2.0f, 0.5f, 0.9f}) == 2u);
  CHECK(taken({1.0f, 0.98f}) == 0u);         // not enough of a gain
  CHECK(taken({1.0f, 0.98f, 0.96f}) == 2u);  // compared with the best, not with the one before
  CHECK(taken({std::nullopt, 2.0f}) == 1u);  // the first does not run
  CHECK(taken({2.0f, std::nullopt}) == 0u);
  CHECK(taken({std::nullopt, std::nullopt}) == std::nullopt);
  CHECK(taken({}) == std::nullopt);
}

TEST_CASE("a median leaves out what disturbed a run", "[cuda]") {
  CHECK(median_of({5}) == 5);
  CHECK(median_of({100, 1, 2, 3, 1}) == 2);
  CHECK(median_of({1, 2}) == 2);
}

}  // namespace stretto::cuda
