#include "report/table.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace stretto;

TEST_CASE("numbers align right, words align left", "[table]") {
  Table table({"mode", "ranks", "step ms", "note"});
  table.add_row({"plain", "2", "10.50", "a"});
  table.add_row({"overlap_grad_reduce", "16", "-", "longer"});
  table.add_row({"x", "128", "−3.25"});
  CHECK(table.rows() == 3);
  CHECK(table.text() ==
        "mode                 ranks  step ms  note\n"
        "-------------------  -----  -------  ------\n"
        "plain                    2    10.50  a\n"
        "overlap_grad_reduce     16        -  longer\n"
        "x                      128    −3.25\n");
}

TEST_CASE("a number with more than a unit after it is words", "[table]") {
  Table table({"a", "b"});
  table.add_row({"1.5 s", "1.5 s"});
  table.add_row({"20 ms", "20 ms a step"});
  CHECK(table.right_aligned() == std::vector<bool>{true, false});
}

TEST_CASE("a table without rows is its header", "[table]") { CHECK(Table({"a", "bc"}).text() == "a  bc\n-  --\n"); }

TEST_CASE("width counts characters, not bytes", "[table]") {
  CHECK(display_width("α·β") == 3);
  CHECK(display_width("e\xcc\x81") == 1);
  CHECK(display_width("") == 0);
  Table table({"µs", "×"});
  table.add_row({"é", "ab"});
  CHECK(table.text() == "µs  ×\n--  --\né   ab\n");
}
