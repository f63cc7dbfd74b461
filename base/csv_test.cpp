#include "base/csv.hpp"

#include <catch2/catch.hpp>

#include "tests/message_of.hpp"

TEST_CASE("a table with a line of megabytes is refused before it is cut into cells", "[csv]") {
  const std::string wide(2 << 20, ',');
  CHECK_FALSE(stretto::has_csv_column(wide, "m"));
  const auto refusal = [](const std::string& text) {
    return stretto::testing::message_of(
        [&] { stretto::read_csv(text, "t.csv", {"m"}, [](const stretto::CsvRow&) {}); });
  };
  CHECK(refusal(wide) == "t.csv:1: expected a line of at most 1 MiB, got a longer one");
  CHECK(refusal("m\n1\n" + wide) == "t.csv:3: expected a line of at most 1 MiB, got a longer one");
}
