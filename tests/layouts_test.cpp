// Tests that tensor and sequence parallelism, combined with data parallelism, train what one rank trains.
#include <catch2/catch.hpp>

#include "model/verify/dataflow.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

const Layout kLayouts[] = {{1, 2}, {1, 3}, {2, 2}, {3, 2}, {1, 2, true}, {1, 3, true}, {2, 2, true}, {2, 3, true}};

void check_all(bool threaded, bool llama) {
  SingleRank single(3);
  check_every_mode(
      single, kLayouts,
      [&](const Layout& layout, const std::string& mode) { return layout_scenario(layout, mode, llama); }, threaded);
}

}  // namespace

TEST_CASE("fp64: every layout and mode equals the single rank, serially, GPT", "[serial]") { check_all(false, false); }
TEST_CASE("fp64: every layout and mode equals the single rank, serially, Llama", "[serial]") { check_all(false, true); }
TEST_CASE("fp64: every layout and mode equals the single rank, on threads") { check_all(true, false); }

TEST_CASE("fp32: tensor parallelism is within 1e-5 of the single rank") {
  const Trained reference = train(layout_scenario({}, "plain", false, "fp32"), 1, true);
  for (const Layout& layout : kLayouts) {
    INFO(layout.text());
    const Trained trained = train(layout_scenario(layout, "plain", false, "fp32"), 1, true);
    CHECK(trained.losses.back() == Approx(reference.losses.back()).epsilon(1e-5));
    CHECK(worst_relative_difference(trained.gradients, reference.gradients) < 1e-5);
  }
}

TEST_CASE("overlap of tensor-parallel communication gives the same bits", "[serial]") {
  Cases cases;
  for (const Layout& layout : kLayouts) {
    if (!cases.takes_next()) continue;
    const Trained plain = train(layout_scenario(layout, "plain", false, "fp32", 2), 2, false);
    for (const char* name : {"async_tensor_model_parallel_allreduce", "tp_comm_bulk"}) {
      const Scenario scenario = layout_scenario(layout, name, false, "fp32", 2);
      if (!find_overlap_mode(name).applies(scenario.parallel)) continue;
      for (const std::uint64_t seed : {1, 2, 3}) {
        INFO(layout.text() << ", " << name << ", seed " << seed);
        const Trained trained = train(scenario, 2, false, seed);
        CHECK(trained.losses == plain.losses);
        CHECK(same_bits(trained.parameters, plain.parameters));
      }
      const Schedule schedule = build_schedule(scenario);
      CHECK(verify_equivalent(build_schedule(layout_scenario(layout, "plain", false, "fp32", 2)), schedule,
                              SumOrder::same) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("each bulk overlap can be had alone", "[serial]") {
  Scenario scenario = layout_scenario({1, 2, true}, "tp_comm_bulk", false);
  const Trained plain = train(layout_scenario({1, 2, true}, "plain", false), 1, false);
  for (const bool dgrad : {false, true}) {
    scenario.overlap.tp_comm_bulk_dgrad = dgrad;
    scenario.overlap.tp_comm_bulk_wgrad = !dgrad;
    CHECK(same_bits(train(scenario, 1, false).gradients, plain.gradients));
  }
}

TEST_CASE("gates of tensor-parallel overlap say what would open them") {
  const auto notes = [](const Layout& layout, const char* mode) {
    Scenario scenario = layout_scenario(layout, mode, false);
    scenario.overlap.bucket_size = 0;
    const Schedule schedule = build_schedule(scenario);
    return schedule.notes.empty() ? "" : schedule.notes.back();
  };
  CHECK_THAT(notes({1, 2}, "tp_comm_overlap"), Catch::Contains("it needs sequence_parallel = true"));
  CHECK_THAT(notes({2, 1}, "tp_comm_overlap"), Catch::Contains("tensor_model_parallel_size above 1, got 1"));
  CHECK_THAT(notes({1, 2, true}, "async_tensor_model_parallel_allreduce"), Catch::Contains("tp_comm_overlap acts"));
  CHECK(notes({1, 2, true}, "tp_comm_overlap").empty());
}

TEST_CASE("GELU and gradients of biases as epilogues give the same bits, cut into pieces too", "[serial]") {
  Cases cases;
  for (const Layout& layout :
       {Layout{2, 1}, Layout{1, 2, true}, Layout{1, 3, true}, Layout{1, 2}, Layout{1, 1, false, 3}})
    for (const OverlapMode& mode : overlap_modes())
      for (const bool recomputes : {false, true}) {
        Scenario scenario = layout_scenario(layout, mode.name, false);
        if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
        if (recomputes) scenario.training.recompute.granularity = Recompute::Granularity::full;
        INFO(layout.text() << ", " << mode.name << ", recomputes " << recomputes);
        const Trained apart = train(scenario, 2, false);
        scenario.training.gelu_fusion = scenario.training.bias_gradient_fusion = true;
        const Schedule fused = build_schedule(scenario);
        int sums = 0;
        for (const Operation& operation : fused.operations)
          if (const auto* elementwise = std::get_if<Elementwise>(&operation.work)) {
            CHECK((elementwise->fn != ElementwiseFn::gelu && elementwise->fn != ElementwiseFn::gelu_backward));
            sums += elementwise->fn == ElementwiseFn::column_sum;
          }
        CHECK(sums == (layout.sequence_parallel ? 2 : 0));  // each rank's rows, in the two row-parallel layers
        const auto check_same = [&] {
          const Trained together = train(scenario, 2, false);
          CHECK(together.losses == apart.losses);
          CHECK(same_bits(together.gradients, apart.gradients));
          CHECK(same_bits(together.parameters, apart.parameters));
        };
        check_same();
        if (recomputes) continue;
        scenario.training.gelu_bias_gradient_fusion = true;
        const Schedule summed = build_schedule(scenario);
        CHECK(scenario.overlap.tp_comm_overlap ==
              std::none_of(summed.operations.begin(), summed.operations.end(), [](const Operation& operation) {
                const auto* gemm = std::get_if<Gemm>(&operation.work);
                return gemm != nullptr && gemm->sums_columns();
              }));
        check_same();
      }
  Scenario llama = layout_scenario({2, 1}, "plain", true);
  llama.training.gelu_fusion = llama.training.bias_gradient_fusion = true;
  const Schedule schedule = build_schedule(llama);
  REQUIRE(schedule.notes.size() >= 2);
  CHECK_THAT(schedule.notes[schedule.notes.size() - 2],
             Catch::Contains("gelu_fusion is off") && Catch::Contains("swiglu"));
  CHECK_THAT(schedule.notes.back(), Catch::Contains("bias_gradient_fusion is off") && Catch::Contains("no biases"));
}

TEST_CASE("the bias before GELU is summed with its gradient where there is that epilogue", "[serial]") {
  Scenario scenario = layout_scenario({1, 2, true}, "plain", false);
  const auto is_off_because = [&](const char* why) {
    const Schedule schedule = build_schedule(scenario);
    return std::any_of(schedule.notes.begin(), schedule.notes.end(), [&](const std::string& note) {
      return note.starts_with("gelu_bias_gradient_fusion is off") && note.find(why) != std::string::npos;
    });
  };
  scenario.training.gelu_bias_gradient_fusion = true;
  CHECK(is_off_because("gelu_fusion is off"));
  scenario.training.gelu_fusion = true;  // gradients of other biases stay separate
  CHECK_FALSE(is_off_because(""));
  const Trained fused = train(scenario, 2, false);
  for (const Operation& operation : build_schedule(scenario).operations) CHECK(operation.name != "fc1.bgrad");
  scenario.training.gelu_bias_gradient_fusion = false;
  CHECK(same_bits(fused.gradients, train(scenario, 2, false).gradients));
  scenario.training.gelu_bias_gradient_fusion = scenario.overlap.tp_comm_overlap = true;
  CHECK(is_off_because("tp_comm_overlap is on"));
  scenario.overlap.tp_comm_overlap = false;
  scenario.training.frozen_base = true;
  CHECK(is_off_because("frozen_base is on"));
}

TEST_CASE("additions to the residual stream inside products give the same bits in less memory", "[serial]") {
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout : {Layout{1, 1}, Layout{3, 1}, Layout{1, 1, false, 3}, Layout{2, 1, false, 2, 3}})
      for (const OverlapMode& mode : overlap_modes())
        for (const auto granularity :
             {Recompute::Granularity::none, Recompute::Granularity::selective, Recompute::Granularity::full}) {
          Scenario scenario = layout_scenario(layout, mode.name, llama, "fp32");
          const bool recomputes = granularity != Recompute::Granularity::none;
          if (!mode.applies(scenario.parallel) || (recomputes && mode.name != "plain") || !cases.takes_next()) continue;
          scenario.training.recompute.granularity = granularity;
          INFO(layout.text() << ", " << mode.name << (llama ? ", llama" : ", gpt") << ", recomputes "
                             << static_cast<int>(granularity));
          const Trained apart = train(scenario, 2, false);
          const std::int64_t bytes = plan_memory(build_schedule(scenario)).peak_bytes();
          scenario.training.residual_fusion = true;
          const Schedule fused = build_schedule(scenario);
          for (const Operation& operation : fused.operations)
            if (const auto* elementwise = std::get_if<Elementwise>(&operation.work))
              CHECK((elementwise->fn != ElementwiseFn::add && elementwise->fn != ElementwiseFn::bias_add));
          CHECK_FALSE(fused.find_tensor("branch.out"));
          CHECK(plan_memory(fused).peak_bytes() <= bytes);
          for (const bool with_others : {false, true}) {
            scenario.training.gelu_fusion = scenario.training.bias_gradient_fusion = with_others;
            const Trained together = train(scenario, 2, with_others);
            CHECK(together.losses == apart.losses);
            CHECK(same_bits(together.gradients, apart.gradients));
            CHECK(same_bits(together.parameters, apart.parameters));
          }
        }
}

TEST_CASE("both gradients of a norm in one operation give the same bits", "[serial]") {
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout :
         {Layout{1, 1}, Layout{3, 1}, Layout{1, 2, true}, Layout{1, 2}, Layout{2, 1, false, 2, 3}})
      for (const OverlapMode& mode : overlap_modes()) {
        Scenario scenario = layout_scenario(layout, mode.name, llama, "fp32");
        if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
        INFO(layout.text() << ", " << mode.name << (llama ? ", llama" : ", gpt"));
        const Trained apart = train(scenario, 2, false);
        const std::size_t operations = build_schedule(scenario).operations.size();
        scenario.training.norm_gradient_fusion = true;
        // The operations of a layer, two, and of the head are gone.
        CHECK(build_schedule(scenario).operations.size() == operations - 3);
        const Trained together = train(scenario, 2, true);
        CHECK(together.losses == apart.losses);
        CHECK(same_bits(together.gradients, apart.gradients));
        CHECK(same_bits(together.parameters, apart.parameters));
      }
}

TEST_CASE("additions to the residual stream inside products round once in bf16", "[serial]") {
  for (const bool llama : {false, true}) {
    Scenario scenario = layout_scenario({2, 1}, "overlap_param_gather", llama, "bf16");
    const Trained apart = train(scenario, 2, false);
    scenario.training.residual_fusion = true;
    const Trained together = train(scenario, 2, false);
    CHECK(together.losses.back() == Approx(apart.losses.back()).epsilon(0.01));
    CHECK(worst_relative_difference(together.gradients, apart.gradients) < 0.1);
  }
}

TEST_CASE("what keeps additions to the residual stream apart", "[serial]") {
  const auto note = [](const Layout& layout, double dropout) {
    Scenario scenario = layout_scenario(layout, "plain", false);
    scenario.overlap.bucket_size = 0;
    scenario.model.hidden_dropout = dropout;
    const Schedule apart = build_schedule(scenario);
    scenario.training.residual_fusion = true;
    const Schedule schedule = build_schedule(scenario);
    CHECK(schedule.operations.size() == apart.operations.size());
    REQUIRE(schedule.notes.size() == 1);
    return schedule.notes.back();
  };
  CHECK_THAT(note({1, 1}, 0.1), Catch::Contains("residual_fusion is off: hidden_dropout is above 0"));
  for (const Layout& layout : {Layout{1, 2}, Layout{1, 2, true}})
    CHECK_THAT(note(layout, 0), Catch::Contains("residual_fusion is off: tensor_model_parallel_size is above 1"));
  CHECK_THAT(note({1, 2}, 0.1), Catch::Contains("residual_fusion is off: hidden_dropout is above 0"));
}

}  // namespace stretto::testing
