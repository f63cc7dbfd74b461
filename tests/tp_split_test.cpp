// GEMMs whose tensor-parallel communication is cut into pieces train what one rank trains, whatever the pieces.
#include <catch2/catch.hpp>

#include "tests/training.hpp"

namespace stretto::testing {
namespace {

constexpr int kSteps = 2;

struct Cut {
  const char* text;
  std::map<std::string, TpGemm> gemms;
  bool rs_dgrad = false;
};
constexpr TpGemm kRing{TpMethod::ring_exchange}, kAggregate{TpMethod::ring_exchange, true}, kNoOverlap{TpMethod::none};
constexpr TpGemm pieces(std::int64_t splits) { return {TpMethod::pipeline, false, splits}; }

const Cut kCuts[] = {
    {"defaults", {}},
    {"ring exchange everywhere",
     {{"proj_fprop", kRing}, {"fc2_fprop", kRing}, {"qkv_dgrad", kRing}, {"fc1_dgrad", kRing}}},
    {"aggregate",
     {{"qkv_fprop", kAggregate}, {"fc1_fprop", kAggregate}, {"proj_dgrad", kAggregate}, {"fc2_dgrad", kAggregate}}},
    {"pieces of dgrad", {}, true},
    {"two and six pieces", {{"proj_fprop", pieces(2)}, {"fc2_fprop", pieces(6)}, {"qkv_dgrad", pieces(3)}}},
    {"one GEMM alone",
     {{"qkv_fprop", kNoOverlap},
      {"fc1_fprop", kNoOverlap},
      {"proj_dgrad", kNoOverlap},
      {"proj_fprop", kNoOverlap},
      {"fc2_fprop", kNoOverlap},
      {"qkv_dgrad", kNoOverlap},
      {"fc1_dgrad", kNoOverlap},
      {"qkv_wgrad", kNoOverlap},
      {"fc1_wgrad", kNoOverlap}}},
};

const Layout kLayouts[] = {{1, 2, true}, {1, 3, true}, {2, 2, true}, {1, 6, true}, {1, 2, true, 2}, {1, 2, true, 2, 3}};

Scenario cut_scenario(const Layout& layout, const Cut& cut, bool llama, std::int64_t lanes) {
  Scenario scenario = layout_scenario(layout, "tp_comm_overlap", llama);
  scenario.overlap.tp_comm_overlap_cfg = cut.gemms;
  scenario.overlap.tp_comm_overlap_rs_dgrad = cut.rs_dgrad;
  scenario.overlap.tp_comm_overlap_compute_lanes = lanes;
  return scenario;
}

}  // namespace

TEST_CASE("fp64: cut GEMMs equal the single rank") {
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout : kLayouts) {
      if (llama && layout.dp * layout.tp * layout.pp > 3) continue;
      Scenario single = layout_scenario({}, "plain", llama);
      if (layout.pp > 1) single.model.num_layers = 6;
      const Trained reference = train(single, kSteps, false);
      for (const Cut& cut : kCuts)
        for (const std::int64_t lanes : {1, 3}) {
          if (!cases.takes_next()) continue;
          INFO(layout.text() << ", " << cut.text << ", " << lanes << " compute lanes" << (llama ? ", llama" : ", gpt"));
          const Scenario scenario = cut_scenario(layout, cut, llama, lanes);
          const Trained trained = train(scenario, kSteps, lanes == 3 && layout.tp * layout.dp * layout.pp < 4);
          CHECK(trained.losses.back() == Approx(reference.losses.back()).epsilon(1e-10));
          CHECK(trained.norms.back() == Approx(reference.norms.back()).epsilon(1e-10));
          CHECK(worst_relative_difference(trained.gradients, reference.gradients) < 1e-10);
        }
    }
}

TEST_CASE("cut GEMMs go with recomputation and with data-parallel overlap", "[serial]") {
  for (const Recompute& recompute : {Recompute{Recompute::Granularity::selective},
                                     Recompute{Recompute::Granularity::full, Recompute::Method::uniform, 2}}) {
    Scenario scenario = cut_scenario({2, 2, true}, kCuts[1], false, 2);
    scenario.overlap.overlap_grad_reduce = scenario.overlap.overlap_param_gather = true;
    const Trained reference = train(scenario, kSteps, false);
    scenario.training.recompute = recompute;
    for (const std::uint64_t seed : {1, 2, 3})
      CHECK(same_bits(train(scenario, kSteps, false, seed).parameters, reference.parameters));
  }
}

TEST_CASE("pieces that a model does not divide into are off, and said to be") {
  Scenario scenario = cut_scenario({1, 3, true}, {"", {{"fc2_fprop", pieces(5)}, {"qkv_fprop", kAggregate}}}, false, 1);
  scenario.overlap.bucket_size = 0;
  const Schedule schedule = build_schedule(scenario);
  REQUIRE(schedule.notes.size() == 2);
  CHECK_THAT(schedule.notes[0], Catch::Contains("qkv_fprop is off: aggregate pairs ranks"));
  CHECK_THAT(schedule.notes[1], Catch::Contains("fc2_fprop is off: hidden_size 24 does not divide into num_splits 5"));
}

}  // namespace stretto::testing
