#include "base/budget.hpp"

#include <catch2/catch.hpp>

#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;
using Catch::Matchers::Contains;
using stretto::testing::message_of;

TEST_CASE("a reader that passes a limit of its budget says the file, the line, the limit and what to do", "[budget]") {
  BudgetLimits limits;
  limits.looks = 3'000'000;
  limits.bytes = 2 << 20;
  limits.rows = 2;
  limits.advice = "give a shorter one";
  Budget budget("run.sh", limits);
  budget.look(2'999'999);
  CHECK(message_of([&] { budget.look(2); }) ==
        "run.sh: reading it takes more than 3000000 looks at characters: give a shorter one");
  budget.look(1);
  CHECK_THAT(message_of([&] { budget.look(1); }), Contains("looks"));
  budget.at_line(7);
  budget.keep(2 << 20);
  CHECK_THAT(message_of([&] { budget.keep(1); }), Contains("run.sh:7: ") && Contains("2 MiB of memory"));
  budget.add_row();
  budget.add_row();
  CHECK_THAT(message_of([&] { budget.add_row(); }), Contains("2 rows"));
  CHECK_THAT(message_of([&] { budget.add_row(); }), Contains("2 rows"));
}

TEST_CASE("a budget ends what takes too much processor time, and knows a file's size before it reads", "[budget]") {
  BudgetLimits limits;
  limits.looks = std::uint64_t{1} << 60;
  limits.processor_s = 0.01;
  Budget budget("x", limits);
  CHECK_THAT(message_of([&] {
               for (;;) budget.look(1);
             }),
             Contains("0.01 s of processor time"));
  const testing::TempDir folder;
  const std::string path = folder.write("five", "12345");
  Budget of_file(path);
  CHECK(read_text(path, of_file) == "12345");
  limits.bytes = 4;
  Budget small(path, limits);
  CHECK_THAT(message_of([&] { read_text(path, small); }), Contains("five: reading it takes more than"));
}
