// Tests of overlap_param_gather_with_optimizer_step: the first chunk of a rank is updated first and gathered
// concurrently with the other updates.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

Scenario scenario_of(const Layout& layout, bool during_update, const std::string& precision = "fp64",
                     bool llama = false) {
  Scenario scenario = layout_scenario(layout, "overlap_param_gather", llama, precision, 1, 12);
  scenario.model.num_layers = layout.pp * layout.vp;
  scenario.overlap.overlap_param_gather_with_optimizer_step = during_update;
  return scenario;
}

std::vector<Layout> layouts_that_gather() {
  return {{2, 1, false, 2, 2}, {3, 1, false, 2, 3}, {2, 2, true, 2, 2}, {.dp = 1, .pp = 2, .vp = 2, .cp = 2}};
}

}  // namespace

TEST_CASE("gathers concurrent with the update: the numerics of one rank", "[serial]") {
  for (const Layout& layout : layouts_that_gather())
    for (const bool align : {false, true})
      for (const bool threaded : {false, true}) {
        INFO(layout.text() << (align ? ", aligned" : "") << (threaded ? ", on threads" : ""));
        Scenario scenario = scenario_of(layout, true), single = scenario;
        scenario.overlap.align_param_gather = align;
        single.parallel = {};
        single.overlap = {};
        const Trained expected = train(single, 3, false), trained = train(scenario, 3, threaded);
        for (int step = 0; step < 3; ++step)
          CHECK(trained.losses[step] == Approx(expected.losses[step]).epsilon(1e-10));
        CHECK(worst_relative_difference(trained.gradients, expected.gradients) < 1e-10);
        CHECK(worst_relative_difference(trained.parameters, expected.parameters) < 1e-8);
        const MemoryPlan plan = plan_memory(build_schedule(scenario));
        CHECK(*std::max_element(trained.allocated_bytes.begin(), trained.allocated_bytes.end()) == plan.peak_bytes());
      }
}

TEST_CASE("gathers concurrent with the update compute what other gathers do", "[serial]") {
  for (const Layout& layout : layouts_that_gather())
    for (const bool llama : {false, true}) {
      INFO(layout.text() << (llama ? ", llama" : ""));
      CHECK(verify_equivalent(build_schedule(scenario_of(layout, false, "bf16", llama)),
                              build_schedule(scenario_of(layout, true, "bf16", llama)),
                              SumOrder::any) == std::vector<std::string>{});
    }
}

TEST_CASE("gathers concurrent with the update: the updates of the others hide the first chunk's", "[closed]") {
  for (const Time transfer : {100, 4'000, 200'000}) {
    INFO("gathers of " << transfer);
    Scenario scenario = scenario_of({2, 1, false, 2, 3}, true, "fp32");
    scenario.cluster.ranks_per_device = 1;
    Ideal ideal(scenario);
    const Schedule& schedule = ideal.schedule;
    for (OpId op = 0; op < schedule.operations.size(); ++op) {
      if (!is_communication(schedule.operations[op].work)) ideal.set(op, 1000 + 37 * (op % 11));
      if (schedule.operations[op].name.starts_with("dp.all_gather")) ideal.set(op, transfer);
    }
    const sim::SimResult result = ideal.run();
    for (std::size_t stage = 0; stage < result.programs.size(); ++stage) {
      std::vector<const TimelineRow*> updates, gathers;
      for (const TimelineRow& row : result.timeline.rows) {
        if (row.rank != result.programs[stage].rank) continue;
        const std::string& name = schedule.operations[result.programs[stage].ops[row.op].op].name;
        if (name.starts_with("adamw")) updates.push_back(&row);
        if (name.starts_with("dp.all_gather")) gathers.push_back(&row);
      }
      const auto by_start = [](const TimelineRow* a, const TimelineRow* b) { return a->start < b->start; };
      std::sort(updates.begin(), updates.end(), by_start);
      std::sort(gathers.begin(), gathers.end(), by_start);
      REQUIRE(updates.size() >= 3);
      REQUIRE(gathers.size() == updates.size());
      const auto bucket_of = [&](const TimelineRow* row) {
        const std::string& name = schedule.operations[result.programs[stage].ops[row->op].op].name;
        return name.substr(name.rfind('.'));
      };
      // The last two updates belong to the other chunks. The first gather after an update begins before them.
      const auto first = std::find_if(gathers.begin(), gathers.end(),
                                      [&](const TimelineRow* row) { return row->start >= updates.front()->end; });
      REQUIRE(first != gathers.end());
      const auto others = updates.end() - 2;
      CHECK((*first)->start <= (*others)->start);
      CHECK((*first)->end == (*first)->start + transfer);
      CHECK(std::any_of(updates.begin(), others,
                        [&](const TimelineRow* update) { return bucket_of(update) == bucket_of(*first); }));
    }
  }
}

TEST_CASE("the reader of scenarios says what gathers concurrent with the update need") {
  const auto message_of = [](const std::string& parallel, const std::string& overlap) {
    try {
      parse_scenario("[model]\npreset = \"gpt2-124m\"\n[parallel]\ndata_parallel_size = 2\n" + parallel +
                         "[overlap]\noverlap_param_gather_with_optimizer_step = true\n" + overlap +
                         "[training]\nglobal_batch_size = 8\n",
                     "test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string stages = "pipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 2\n",
                    gather = "overlap_grad_reduce = true\noverlap_param_gather = true\noverlap_p2p_comm = true\n";
  CHECK(message_of(stages, gather).empty());
  CHECK_THAT(message_of(stages, ""), Catch::Contains("overlap_param_gather = true as well"));
  CHECK_THAT(message_of("pipeline_model_parallel_size = 2\n", gather),
             Catch::Contains("virtual_pipeline_model_parallel_size above 1 as well, got 1"));
}

}  // namespace stretto::testing
