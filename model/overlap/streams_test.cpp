#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <variant>

#include "base/error.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

const Communicator* find(const Schedule& schedule, const std::string& name) {
  const auto& all = schedule.communicators;
  const auto found = std::find_if(all.begin(), all.end(), [&](const Communicator& c) { return c.name == name; });
  return found == all.end() ? nullptr : &*found;
}
// Counts the collectives of each kind on a communicator.
std::map<CollectiveKind, int> kinds_on(const Schedule& schedule, const std::string& name) {
  std::map<CollectiveKind, int> kinds;
  for (const Operation& operation : schedule.operations)
    if (const auto* c = std::get_if<Collective>(&operation.work))
      if (schedule.communicators[c->communicator].name == name) ++kinds[c->kind];
  return kinds;
}
Schedule with_zero_ctas(Scenario scenario, const std::string& group) {
  scenario.cluster.nccl_ub = true;
  scenario.cluster.zero_cta_groups = {group};
  Schedule schedule = build_schedule(scenario);
  plan_and_verify(schedule);
  return schedule;
}

}  // namespace

TEST_CASE("cta_policy zero: what only moves is on copy engines, what adds up has a communicator of its own",
          "[overlap]") {
  Scenario scenario = layout_scenario(Layout{2, 1}, "overlap_param_gather", false, "fp32", 1, 2);
  scenario.cluster.max_ctas["dp"] = 4;
  const Schedule schedule = with_zero_ctas(scenario, "dp");
  REQUIRE(find(schedule, "dp.copy") != nullptr);
  CHECK(find(schedule, "dp.copy")->engine == CommEngine::copy_engine);
  CHECK(find(schedule, "dp.copy")->size == 2);
  CHECK(find(schedule, "dp")->engine == CommEngine::sm);
  CHECK(find(schedule, "dp")->channels == 4);
  CHECK(kinds_on(schedule, "dp.copy").contains(CollectiveKind::all_gather));
  CHECK(kinds_on(schedule, "dp.copy").size() == 1);
  CHECK_FALSE(kinds_on(schedule, "dp").contains(CollectiveKind::all_gather));
  CHECK(kinds_on(schedule, "dp").contains(CollectiveKind::reduce_scatter));
  CHECK(schedule.notes.empty());
  // No other operation has moved.
  const Schedule plain = build_schedule(scenario);
  REQUIRE(plain.operations.size() == schedule.operations.size());
  for (std::size_t op = 0; op < plain.operations.size(); ++op)
    CHECK(plain.operations[op].lane == schedule.operations[op].lane);
  CHECK(plain.communicators.size() + 1 == schedule.communicators.size());
}

TEST_CASE("cta_policy zero where nothing only moves, and without registered memory", "[overlap]") {
  const Scenario scenario = layout_scenario(Layout{1, 1, false, 2}, "plain", false, "fp32", 1, 2);
  const Schedule schedule = with_zero_ctas(scenario, "pp");
  CHECK(std::any_of(schedule.notes.begin(), schedule.notes.end(), [](const std::string& note) {
    return note.starts_with("nccl_communicator_config.pp.cta_policy is off: the group has no all-gather");
  }));
  for (const Communicator& communicator : schedule.communicators) CHECK(communicator.engine == CommEngine::nic);
  CHECK_THROWS_WITH(parse_scenario("[model]\npreset = \"gpt2-124m\"\n[parallel]\ndata_parallel_size = 2\n"
                                   "[training]\nglobal_batch_size = 2\n"
                                   "[cluster.nccl_communicator_config.dp]\ncta_policy = \"zero\"\n",
                                   "s.toml"),
                    Catch::Contains("cta_policy: expected [cluster] nccl_ub = true"));
}

}  // namespace stretto::testing
