#include "model/expert_loads.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/rng.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::expert_loads {

using Kind = ExpertLoads::Kind;

TEST_CASE("the largest load of a rank follows from the distribution of tokens", "[moepredict]") {
  const auto most = [](Kind kind, std::int64_t experts, std::int64_t topk, double tokens, std::int64_t ranks) {
    return most_over_mean({.kind = kind}, experts, topk, tokens, ranks);
  };
  CHECK(most(Kind::equal, 128, 8, 16384, 16) == 1);
  CHECK(most(Kind::natural, 128, 8, 16384, 1) == 1);
  // Below 1 % of a rank's rows at 16k rows, and nothing where every expert gets every token.
  CHECK(most(Kind::forced, 128, 8, 65536, 16) > 1);
  CHECK(most(Kind::forced, 128, 8, 65536, 16) < 1.02);
  CHECK(most(Kind::forced, 4, 4, 100, 2) == 1);
  // Draws of the same routing: each token goes to two of eight experts; each of four ranks has two experts.
  double drawn = 0;
  constexpr int kDraws = 2000, kTokens = 64;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    double loads[4] = {};
    for (std::uint64_t token = 0; token < kTokens; ++token)
      for (std::uint64_t expert = 0; expert < 2; ++expert) ++loads[permuted(expert, 8, draw, token) / 2];
    drawn += *std::max_element(loads, loads + 4) / (kTokens * 2 / 4.0) / kDraws;
  }
  CHECK(most(Kind::forced, 8, 2, kTokens, 4) == Approx(drawn).margin(0.02));
  // By aiconfigurator's power law of 1.01, rows of the worst of 4, 8 and 16 ranks.
  const auto served = [](std::int64_t ranks) {
    return most_over_mean({.kind = Kind::natural, .exponent = 1.01}, 128, 8, 16384, ranks);
  };
  CHECK(served(4) == Approx(1.38).margin(0.05));
  CHECK(served(8) == Approx(1.77).margin(0.07));
  CHECK(served(16) == Approx(2.42).margin(0.1));
  CHECK(most(Kind::natural, 128, 8, 16384, 16) < served(16));
  CHECK(most_over_mean({.kind = Kind::natural, .exponent = 1}, 128, 8, 16384, 8) ==
        Approx(most_over_mean({.kind = Kind::natural, .exponent = 1 + 1e-7}, 128, 8, 16384, 8)).epsilon(1e-3));
}

TEST_CASE("measured loads of experts come from a file", "[moepredict]") {
  const testing::TempDir dir;
  const auto read = [&](const std::string& text) {
    ExpertLoads loads{.kind = Kind::measured, .file = dir.write("loads.csv", text)};
    read_measured(loads, 4);
    return loads;
  };
  const ExpertLoads loads = read("layer,expert,tokens\n1,0,30\n1,1,10\n1,2,10\n1,3,10\n2,0,10\n2,3,30\n");
  CHECK(most_over_mean(loads, 4, 1, 100, 2) == Approx((40.0 / 30 + 30.0 / 20) / 2));
  CHECK(most_over_mean(read("expert,tokens\n0,1\n1,1\n2,1\n3,1\n"), 4, 1, 100, 4) == 1);
  const auto refusal = [&](const std::string& text) { return testing::message_of([&] { read(text); }); };
  CHECK(refusal("expert,tokens\n4,1\n").find("loads.csv:2: expert: expected a number") != std::string::npos);
  CHECK(refusal("expert,tokens\n0,0\n").find("expected tokens of an expert") != std::string::npos);
  CHECK(refusal("expert,tokens\n").find("a row for each expert, got none") != std::string::npos);
}

}  // namespace stretto::expert_loads
