#include "model/schedule/derive.hpp"

#include <catch2/catch.hpp>

#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

struct Wait {
  std::size_t call = 0;
  OpId on = 0;
  std::int64_t micro_batch = 0;
  int steps_ago = 0;
  bool operator==(const Wait&) const = default;
};

// Returns the waits of all calls, in order, that derive_waits adds.
std::vector<Wait> derived(TinySchedule& t, const std::vector<OpId>& free) {
  derive_waits(t.schedule, free);
  std::vector<Wait> waits;
  const auto& order = t.schedule.programs[0].order;
  for (std::size_t c = 0; c < order.size(); ++c)
    for (const Edge& edge : order[c].waits) {
      CHECK(edge.kind == EdgeKind::finish_start);
      waits.push_back({c, edge.on.op, edge.on.micro_batch, edge.on.steps_ago});
    }
  return waits;
}

}  // namespace

TEST_CASE("a free operation waits for the last that its data needs, and what needs it for the operation") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8), y = t.tensor("y", 1, 8);
  t.fill("first", 0, x);
  const OpId make = t.fill("make", 0, x);
  t.fill("other", 0, y);
  const OpId sum = t.all_reduce("sum", 2, x);
  t.fill("unconcerned", 0, y);
  const OpId use = t.op("use", 1, Cast{8}, {{AccessMode::read, t.whole(x)}, {AccessMode::write, t.whole(y)}});
  // Nothing orders the step's last use of x before the next step's first use, so the sum waits for both.
  CHECK(derived(t, {sum}) == std::vector<Wait>{{0, sum, 0, 1}, {3, make, 0, 0}, {3, use, 0, 1}, {5, sum, 0, 0}});
  CHECK(use == 5);
}

TEST_CASE("what is known already needs no wait") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8), y = t.tensor("y", 1, 8);
  const OpId make_y = t.fill("make y", 0, y);
  const OpId make_x = t.fill("make x", 0, x);
  const OpId sum_x = t.all_reduce("sum x", 2, x);
  const OpId sum_y = t.all_reduce("sum y", 2, y);
  t.fill("again", 0, y);
  t.fill("once more", 0, x);
  CHECK(make_y == 0);
  SECTION("from the lane") {
    // "sum y" follows "sum x", which waits for an operation after "make y"; "once more" follows "again".
    CHECK(derived(t, {sum_x, sum_y}) == std::vector<Wait>{{2, make_x, 0, 0}, {4, sum_y, 0, 0}});
  }
  SECTION("from waits that are stated") {
    t.schedule.programs[0].order[4].waits = {{EdgeKind::finish_start, {sum_y, 0, 0, 0, 0}}};
    CHECK(derived(t, {sum_x, sum_y}) == std::vector<Wait>{{2, make_x, 0, 0}, {4, sum_y, 0, 0}});
  }
  SECTION("from the sequence") {
    t.schedule.operations[5].lane = 1;
    for (const std::size_t call : {0, 1, 4, 5}) t.schedule.programs[0].order[call].sequence = 1;
    CHECK(derived(t, {sum_x, sum_y}) == std::vector<Wait>{{2, make_x, 0, 0}, {4, sum_y, 0, 0}});
  }
}

TEST_CASE("a free operation waits for all that touched its data in no order") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8);
  const OpId a = t.fill("a", 0, x), b = t.fill("b", 1, x), sum = t.all_reduce("sum", 2, x);
  CHECK(derived(t, {sum}) == std::vector<Wait>{{0, sum, 0, 1}, {1, sum, 0, 1}, {2, b, 0, 0}, {2, a, 0, 0}});
}

TEST_CASE("a part of a block on several lanes is cut where another lane has to wait") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 8), y = t.tensor("y", 1, 8);
  const OpId sum = t.all_reduce("sum", 2, x);
  const OpId a = t.fill("a", 0, y), b = t.fill("b", 0, y), c = t.fill("c", 1, x);
  t.schedule.blocks.push_back({"block", {a, b, c}, {}});
  auto& order = t.schedule.programs[0].order;
  const auto block = static_cast<BlockId>(t.schedule.blocks.size() - 1);
  order.erase(order.begin() + 1, order.end());
  SECTION("a block waits as a whole") {
    order.push_back({block, 0, 0, 0, 0, 3, {}});
    CHECK(derived(t, {sum}) == std::vector<Wait>{{0, c, 0, 1}, {1, sum, 0, 0}});
  }
  SECTION("a part does not") {
    order.push_back({block, 0, 0, 0, 0, 1, {}});
    order.push_back({block, 0, 0, 0, 1, 2, {}});
    CHECK(derived(t, {sum}) == std::vector<Wait>{{0, c, 0, 1}, {3, sum, 0, 0}});
    REQUIRE(order.size() == 4);
    CHECK(order[3].first == 2);
  }
}
