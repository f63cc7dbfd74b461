#include "base/statistics.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace stretto {

TEST_CASE("order statistics", "[statistics]") {
  const std::vector<double> values{4, 1, 3, 2};
  CHECK(minimum(values) == 1);
  CHECK(maximum(values) == 4);
  CHECK(median(values) == 2.5);
  CHECK(percentile(values, 95) == Approx(3.85));
  CHECK(spread_pct(values) == Approx(100 * (3.7 - 1.3) / 2.5));
  CHECK(index_of_median(values) == 2);
  CHECK(median(std::vector<double>{7}) == 7);
  CHECK(spread_pct(std::vector<double>{7}) == 0);
  CHECK(median(std::vector<double>{1, 2, 9}) == 2);
  CHECK(index_of_median(std::vector<double>{1, 9, 2}) == 2);
  CHECK(std::isnan(median({})));
  CHECK(spread_pct({}) == 0);
}

}  // namespace stretto
