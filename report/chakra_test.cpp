#include "report/chakra.hpp"

#include <catch2/catch.hpp>

#include "report/protobuf.hpp"
#include "tests/test_program.hpp"

using namespace stretto;
using stretto::test::HandMade;

TEST_CASE("protobuf's bytes are those of its specification", "[chakra]") {
  ProtoMessage message;
  message.add(1, std::uint64_t{150});
  CHECK(message.bytes() == "\x08\x96\x01");  // both examples of protobuf.dev/programming-guides/encoding
  message = {};
  message.add(2, std::string_view("testing"));
  CHECK(message.bytes() == "\x12\x07testing");
  ProtoMessage packed;
  packed.add(6, std::span<const std::uint64_t>({}));
  CHECK(packed.bytes().empty());
  const std::uint64_t values[] = {3, 270, 86942};
  packed.add(6, values);
  CHECK(packed.bytes() == std::string("\x32\x06\x03\x8E\x02\x9E\xA7\x05"));
  CHECK(packed.delimited() == "\x08" + packed.bytes());
  ProtoMessage last;
  last.add(27, std::uint64_t{0});
  CHECK(last.bytes() == std::string("\xD8\x01\x00", 3));
}

TEST_CASE("what a trace's node waits for: lanes, edges, starts of others and joined messages", "[chakra]") {
  using Lists = std::vector<std::vector<std::uint64_t>>;
  HandMade made;
  const auto a = made.compute(0, 0, 0);
  const auto b = made.add(1, 0, 0, 0, 0, {{a}});
  const auto c = made.compute(0, 0, 0);
  made.add(2, 0, 0, 0, 0, {{b, 0, EdgeKind::start_start}});  // 3: may start when b may
  made.compute(0, 0, 0, {{b}});                              // 4
  made.compute(0, 0, 0, {{b}});                              // 5: 4 has waited for it
  made.add(2, 0, 0, 0, 0, {{c}, {b, 1}});                    // 6: the edge to the previous step is left out
  made.add(1, 0, 0, 0, 0, {{c}});                            // 7 and 8 start together
  made.add(1, 0, 0, 0, 0, {{4}});
  made.add(1, 0, 0, 0, 0);  // 9
  made.compute(0, 0, 0, {{7}});
  made.program.ops[8].joined = true;
  CHECK(dependencies_of(made.program, 3) ==
        Lists{{}, {0}, {0}, {0}, {1, 2}, {4}, {2, 3}, {1, 4}, {1, 4}, {7, 8}, {5, 7}});
}
