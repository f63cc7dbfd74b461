#include "exec/text/draw.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using stretto::exec::draw_token;

TEST_CASE("Tokens are drawn as often as their probabilities say, and one seed draws equal tokens each time") {
  const std::vector<double> logits = {std::log(0.1), std::log(0.6), std::log(0.3), -INFINITY};
  const auto shares = [&](double temperature, std::int64_t top_k) {
    std::array<double, 4> share{};
    for (std::uint64_t place = 0; place < 20000; ++place)
      share[static_cast<std::size_t>(draw_token(logits, {temperature, top_k, 5}, place))] += 1.0 / 20000;
    return share;
  };
  const double off = 0.015;  // 4 deviations
  const auto all = shares(1, 0);
  CHECK(all[0] == Approx(0.1).margin(off));
  CHECK(all[1] == Approx(0.6).margin(off));
  CHECK(all[3] == 0);
  CHECK(shares(1, 2)[1] == Approx(2.0 / 3).margin(off));
  CHECK(shares(1, 2)[0] == 0);
  CHECK(shares(0.5, 0)[1] == Approx(0.36 / 0.46).margin(off));
  CHECK(shares(0, 0)[1] == Approx(1));
  CHECK(shares(1, 3) == shares(1, 3));
  CHECK(draw_token(std::vector<double>{1, 2, 2}, {0, 0, 1}, 0) == 1);
}
