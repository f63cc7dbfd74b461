#include <catch2/catch.hpp>

#include "sim/engine.hpp"
#include "tests/toy_schedule.hpp"

namespace stretto::sim {
namespace {

// `calls` instances of one compute operation, distinguished by their layer; with `buckets` > 0, that many collectives
// follow evenly, each waiting for the compute operation before it.
Toy long_step(std::int64_t calls, std::int64_t buckets) {
  Toy toy(buckets > 0 ? 64 : 1);
  const OpId work = toy.compute("work", 3 * us, {}, 1);
  const OpId reduce = toy.collective("reduce", {us, 5'000, {2 * us, 1, DemandClass::memory}, 1});
  auto& order = toy.schedule.programs.front().order;
  const Call compute = order[work], communicate = order[reduce];
  order.clear();
  for (std::int64_t i = 0; i < calls; ++i) {
    order.push_back(compute);
    order.back().layer = i;
    if (buckets == 0 || i % (calls / buckets) != 0) continue;
    order.push_back(communicate);
    order.back().layer = i;
    order.back().waits = {{EdgeKind::finish_start, {work, i, 0, 0, 0}}};
  }
  return toy;
}

double operations_per_s(const Toy& toy) {
  const SimResult result = simulate(toy.schedule, toy.costs);
  CHECK(result.steady);
  return static_cast<double>(result.operations) / result.simulate_s;
}

}  // namespace

// The test only checks that nothing is slower by orders of magnitude: measured rates are in docs/simulation.md.
TEST_CASE("the engine simulates more than a million operations a second", "[sim][speed]") {
  const double chain = operations_per_s(long_step(100'000, 0));
  const double dp = operations_per_s(long_step(50'000, 50'000));
  CAPTURE(chain, dp);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(chain > 1e6);
  CHECK(dp > 1e6);
#endif
}

}  // namespace stretto::sim
