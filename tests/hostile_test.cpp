#include "tests/hostile.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

namespace stretto::testing {
namespace {

void check(std::uint64_t first_seed, int conversations) {
  const HostileReport report = run_hostile(first_seed, conversations);
  for (const std::string& wrong : report.wrong) UNSCOPED_INFO(wrong);
  CHECK(report.wrong.empty());
  CHECK(report.lived + report.failed == conversations);
  CHECK(report.failed > 0);
  CHECK(report.lived >= conversations / 2);    // jobs visited by strangers
  CHECK(report.most_more_bytes < (64 << 20));  // threads' stacks and heaps included; gigabytes were announced
  std::cout << conversations << " hostile conversations: " << report.lived << " jobs lived, " << report.failed
            << " failed, the longest took " << report.longest_s << " s; " << report.most_more_bytes / 1024
            << " KiB more memory at most\n";
}

}  // namespace

TEST_CASE("whatever a stranger or a false rank says, a job lives or fails with a line", "[processes]") { check(1, 60); }

TEST_CASE("many hostile conversations", "[.][soak]") {
  const char* count = std::getenv("STRETTO_CONVERSATIONS");
  const char* seed = std::getenv("STRETTO_CONVERSATION_SEED");
  check(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1000, count != nullptr ? std::atoi(count) : 10000);
}

}  // namespace stretto::testing
