// The long versions of tests, hidden from a plain run; scripts/soak runs them.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/mutations.hpp"

namespace stretto::testing {

TEST_CASE("mutations with many seeds", "[.][soak]") {
  const char* seeds = std::getenv("STRETTO_SOAK_SEEDS");
  const int count = seeds != nullptr ? std::atoi(seeds) : 10;
  REQUIRE(count > 0);
  for (int seed = 2; seed < 2 + count; ++seed) {  // the plain run takes seed 1
    const MutationReport report = run_mutations(1400, static_cast<std::uint64_t>(seed));
    INFO("seed " << seed);
    for (const std::string& missed : report.missed) UNSCOPED_INFO("accepted although the result changes: " << missed);
    CHECK(report.missed.empty());
    for (const std::string& alarm : report.false_alarms) UNSCOPED_INFO("false alarm: " << alarm);
    CHECK(report.false_alarms.empty());
  }
}

}  // namespace stretto::testing
