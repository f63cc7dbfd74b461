#include "model/schedule/plan.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/verify/verify.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

bool overlap(const Schedule& schedule, const MemoryPlan& plan, StorageId a, StorageId b) {
  return plan.roles[0].offset_bytes[a] < plan.roles[0].offset_bytes[b] + schedule.storages[b].bytes() &&
         plan.roles[0].offset_bytes[b] < plan.roles[0].offset_bytes[a] + schedule.storages[a].bytes();
}

}  // namespace

TEST_CASE("dead storages share, live ones do not") {
  TinySchedule t;
  const TensorId in = t.tensor("in", 1, 10, BufferKind::input), out = t.tensor("out", 1, 10, BufferKind::scalar);
  std::vector<TensorId> chain = {in};
  for (int i = 0; i < 4; ++i) chain.push_back(t.tensor("a" + std::to_string(i), 1, 10));
  chain.push_back(out);
  for (std::size_t i = 1; i < chain.size(); ++i) t.map("op" + std::to_string(i), 0, chain[i - 1], chain[i]);
  const MemoryPlan plan = plan_memory(t.schedule);
  CHECK(plan.roles[0].bytes_without_sharing == 6 * 64);
  CHECK(plan.roles[0].bytes == 4 * 64);  // in, out, and two that alternate
  for (const std::int64_t offset : plan.roles[0].offset_bytes) CHECK(offset % 64 == 0);
  CHECK(overlap(t.schedule, plan, chain[1], chain[3]));
  CHECK_FALSE(overlap(t.schedule, plan, chain[1], chain[2]));  // one operation reads one of them and writes the other
  CHECK(verify(t.schedule, &plan).empty());
  MemoryPlan wrong = plan;
  wrong.roles[0].offset_bytes[chain[2]] = wrong.roles[0].offset_bytes[chain[1]] + 4;
  CHECK_FALSE(verify(t.schedule, &wrong).empty());
}

TEST_CASE("persistent, input, scalar and unused storages share with nobody") {
  TinySchedule t;
  const BufferKind kinds[] = {BufferKind::parameter, BufferKind::optimizer_state, BufferKind::input,
                              BufferKind::scalar};
  for (int i = 0; i < 4; ++i) t.fill("f" + std::to_string(i), 0, t.tensor("s" + std::to_string(i), 1, 16, kinds[i]));
  t.tensor("unused", 1, 16);
  const MemoryPlan plan = plan_memory(t.schedule);
  CHECK(plan.roles[0].bytes == 5 * 64);
}

TEST_CASE("sharing across lanes needs an order both ways round the step") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1, 16, BufferKind::gradient), y = t.tensor("y", 1, 16);
  const OpId a = t.fill("a", 0, x), b = t.fill("b", 1, y);
  const auto shares = [&] {
    const MemoryPlan plan = plan_memory(t.schedule);
    CHECK(verify(t.schedule, &plan).empty());
    return overlap(t.schedule, plan, x, y);
  };
  CHECK_FALSE(shares());
  t.waits_of(b) = {finish_of(a)};
  CHECK_FALSE(shares());  // the next step's a may run while b runs
  t.waits_of(a) = {finish_of(b, 1)};
  CHECK(shares());
  t.waits_of(b) = {start_of(a)};
  CHECK_FALSE(shares());
}

TEST_CASE("a buffer that a collective works on is not reused during the collective") {
  TinySchedule t;
  const TensorId g = t.tensor("g", 1, 64, BufferKind::gradient), w = t.tensor("w", 1, 64), v = t.tensor("v", 1, 64);
  const OpId make = t.fill("make", 0, g);
  const OpId sum = t.all_reduce("sum", 2, g, {finish_of(make)});
  t.fill("concurrent", 0, w);
  t.fill("after", 0, v, {finish_of(sum)});
  const MemoryPlan plan = plan_memory(t.schedule);
  CHECK_FALSE(overlap(t.schedule, plan, g, w));
  CHECK(plan.roles[0].bytes == 2 * 256);  // v takes the bytes of g or of w
  CHECK(verify(t.schedule, &plan).empty());
}

TEST_CASE("large storages are placed first and holes are filled") {
  TinySchedule t;
  const TensorId small = t.tensor("small", 1, 16), big = t.tensor("big", 1, 64), half = t.tensor("half", 1, 32);
  t.fill("a", 0, small);
  t.map("b", 0, View{small, 0, 0, 0, 1, 16, 16}, View{half, 0, 0, 0, 1, 16, 16});
  t.fill("c", 0, big);
  const MemoryPlan plan = plan_memory(t.schedule);
  CHECK(plan.roles[0].offset_bytes[big] == 0);
  CHECK(plan.roles[0].offset_bytes[half] == 0);
  CHECK(plan.roles[0].offset_bytes[small] == 128);
  CHECK(plan.roles[0].bytes == 256);
}

TEST_CASE("a schedule that cannot run has no plan") {
  TinySchedule t;
  const OpId a = t.fill("a", 0, t.tensor("x", 1, 16));
  t.waits_of(a) = {finish_of(a)};
  CHECK_THROWS_AS(plan_memory(t.schedule), Error);
}
