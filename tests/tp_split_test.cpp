// Tests that GEMMs whose tensor-parallel communication is cut into pieces train what one rank trains.
#include <catch2/catch.hpp>

#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

constexpr int kCutSteps = 2;

struct Cut {
  const char* text;
  std::map<std::string, TpGemm> gemms;
  bool rs_dgrad = false;
};
constexpr TpGemm kRing{TpMethod::ring_exchange}, kAggregate{TpMethod::ring_exchange, true}, kNoOverlap{TpMethod::none};
constexpr TpGemm pieces(std::int64_t splits) { return {TpMethod::pipeline, false, splits}; }
constexpr TpGemm flash(std::int64_t slices, TpAccumulate accumulate = TpAccumulate::ring) {
  TpGemm gemm{TpMethod::flash};
  gemm.num_slices = slices;
  gemm.accumulate = accumulate;
  return gemm;
}

const Cut kCuts[] = {
    {"defaults", {}},
    {"ring exchange everywhere",
     {{"proj_fprop", kRing}, {"fc2_fprop", kRing}, {"qkv_dgrad", kRing}, {"fc1_dgrad", kRing}}},
    {"aggregate",
     {{"qkv_fprop", kAggregate}, {"fc1_fprop", kAggregate}, {"proj_dgrad", kAggregate}, {"fc2_dgrad", kAggregate}}},
    {"pieces of dgrad", {}, true},
    {"two and six pieces", {{"proj_fprop", pieces(2)}, {"fc2_fprop", pieces(6)}, {"qkv_dgrad", pieces(3)}}},
    {"flash, added on the way",
     {{"qkv_fprop", flash(1)},
      {"fc1_fprop", flash(1)},
      {"proj_fprop", flash(1)},
      {"fc2_fprop", flash(1)},
      {"proj_dgrad", flash(1)},
      {"fc2_dgrad", flash(1)},
      {"qkv_dgrad", flash(1)},
      {"fc1_dgrad", flash(1)}}},
    {"flash in slices",  // slices that divide a rank's rows
     {{"qkv_fprop", flash(2)},
      {"fc1_fprop", flash(3)},
      {"proj_fprop", flash(3)},
      {"fc2_fprop", flash(2)},
      {"proj_dgrad", flash(2)},
      {"fc2_dgrad", flash(3)},
      {"qkv_dgrad", flash(2)},
      {"fc1_dgrad", flash(3)}}},
    {"flash, added at the owner",
     {{"proj_fprop", flash(3, TpAccumulate::owner)},
      {"fc2_fprop", flash(1, TpAccumulate::owner)},
      {"qkv_dgrad", flash(2, TpAccumulate::owner)},
      {"fc1_dgrad", flash(1)}}},
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

const Layout kSplitLayouts[] = {{1, 2, true}, {1, 3, true},    {2, 2, true},
                                {1, 6, true}, {1, 2, true, 2}, {1, 2, true, 2, 3}};

Scenario cut_scenario(const Layout& layout, const Cut& cut, bool llama, std::int64_t lanes) {
  Scenario scenario = layout_scenario(layout, "tp_comm_overlap", llama);
  scenario.overlap.tp_comm_overlap_cfg = cut.gemms;
  scenario.overlap.tp_comm_overlap_rs_dgrad = cut.rs_dgrad;
  scenario.overlap.tp_comm_overlap_compute_lanes = lanes;
  return scenario;
}

}  // namespace

TEST_CASE("fp64: cut GEMMs equal the single rank") {
  SingleRank single;
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout : kSplitLayouts) {
      if (llama && layout.dp * layout.tp * layout.pp > 3) continue;
      for (const Cut& cut : kCuts)
        for (const std::int64_t lanes : {1, 3}) {
          if (!cases.takes_next()) continue;
          INFO(layout.text() << ", " << cut.text << ", " << lanes << " compute lanes" << (llama ? ", llama" : ", gpt"));
          single.check(cut_scenario(layout, cut, llama, lanes), lanes == 3 && layout.tp * layout.dp * layout.pp < 4);
        }
    }
}

TEST_CASE("cut GEMMs go with recomputation and with data-parallel overlap", "[serial]") {
  for (const Recompute& recompute : {Recompute{Recompute::Granularity::selective},
                                     Recompute{Recompute::Granularity::full, Recompute::Method::uniform, 2}}) {
    Scenario scenario = cut_scenario({2, 2, true}, kCuts[1], false, 2);
    scenario.overlap.overlap_grad_reduce = scenario.overlap.overlap_param_gather = true;
    const Trained reference = train(scenario, kCutSteps, false);
    scenario.training.recompute = recompute;
    for (const std::uint64_t seed : {1, 2, 3})
      CHECK(same_bits(train(scenario, kCutSteps, false, seed).parameters, reference.parameters));
  }
}

// Slices of a rank's rows are combined with all else that cuts sequences, layers and passes.
TEST_CASE("fp64: Flash-Overlap equals the single rank with everything else that cuts a step") {
  Cases cases, on_threads(kThreadedStride);
  SingleRank single;
  for (const bool llama : {false, true})
    for (const std::int64_t cp : {1, 2})
      for (const std::int64_t pp : {1, 2}) {
        const auto shaped = [&](const Layout& layout) {
          Scenario scenario = layout_scenario(layout, layout.tp > 1 ? "tp_flash_overlap" : "plain", llama);
          scenario.model.seq_length = scenario.model.max_position_embeddings = 24;
          scenario.model.ffn_hidden_size = 24;
          if (llama) scenario.model.num_query_groups = 12;
          scenario.model.num_layers = pp > 1 ? 6 : 2;
          scenario.model.padded_vocab_size = 36;  // of 31 tokens
          scenario.training.global_batch_size = 4;
          return scenario;
        };
        for (const std::int64_t tp : {2, 3, 4})
          for (const bool recomputes : {false, true})
            for (const std::int64_t slices : {1, 2}) {
              if (cp * pp > 1 && (tp == 3 || (cp * pp > 2 && tp > 2))) continue;
              if (!cases.takes_next()) continue;
              Scenario scenario = shaped({1, tp, true, pp});
              scenario.parallel.context_parallel_size = cp;
              for (auto& [name, gemm] : scenario.overlap.tp_comm_overlap_cfg) gemm.num_slices = slices;
              if (recomputes)
                scenario.training.recompute = {Recompute::Granularity::full, Recompute::Method::uniform, 1};
              REQUIRE(build_schedule(scenario).name.find("tp_flash_overlap") != std::string::npos);
              for (const bool threaded : {false, true}) {
                if (threaded && !on_threads.takes_next()) continue;
                INFO("tp " << tp << ", cp " << cp << ", pp " << pp << ", " << slices << " slices"
                           << (recomputes ? ", recomputed" : "") << (llama ? ", llama" : ", gpt") << ", threaded "
                           << threaded);
                single.check(scenario, threaded);
              }
            }
      }
}

TEST_CASE("Flash-Overlap ends, with the same bits, whatever lanes share a hardware queue") {
  Cases cases;
  for (const std::int64_t tp : {2, 3, 4})
    for (const std::int64_t slices : {1, 2}) {
      Scenario scenario = layout_scenario({1, tp, true}, "tp_flash_overlap", false, "fp64", 1, 2);
      scenario.model.seq_length = scenario.model.max_position_embeddings = scenario.model.ffn_hidden_size = 24;
      for (auto& [name, gemm] : scenario.overlap.tp_comm_overlap_cfg) gemm.num_slices = slices;
      if (!cases.takes_next()) continue;
      const Trained reference = train(scenario, kCutSteps, false);
      for (const std::int64_t queues : {1, 2, 3, 4, 8})
        for (const std::int64_t lanes : {1, 2}) {
          scenario.cluster.cuda_device_max_connections = queues;
          scenario.overlap.tp_comm_overlap_compute_lanes = lanes;
          INFO("tp " << tp << ", " << slices << " slices, " << queues << " queues, " << lanes << " compute lanes");
          CHECK(same_bits(train(scenario, kCutSteps, false, 7).parameters, reference.parameters));
        }
    }
}

// With the sum in the GEMM each GEMM would wait for the neighbour's.
TEST_CASE("Flash-Overlap adds on a lane of its own, and no piece of a GEMM waits for a message") {
  const Schedule schedule = build_schedule(layout_scenario({1, 3, true}, "tp_flash_overlap", false));
  const auto is = [&](OpId op, const std::string& part) {
    return schedule.operations[op].name.starts_with("fc2.fprop." + part);
  };
  int additions = 0, messages_waited_for = 0;
  for (const Block& block : schedule.blocks)
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      const Operation& operation = schedule.operations[block.ops[i]];
      if (!is(block.ops[i], "")) continue;
      if (is(block.ops[i], "add")) {
        ++additions;
        CHECK(schedule.lanes[operation.lane].name == "tp.add");
        CHECK(std::get<Elementwise>(operation.work).fn == ElementwiseFn::accumulate);
      }
      for (const BlockWait& wait : block.waits)
        if (wait.op == i && is(block.ops[wait.on], "recv")) {
          ++messages_waited_for;
          CHECK(is(block.ops[i], "add"));
        }
      if (const auto* gemm = std::get_if<Gemm>(&operation.work))
        CHECK(operation.accesses[gemm->c_index()].mode == AccessMode::write);
    }
  CHECK(additions == 2);
  CHECK(messages_waited_for == 2);
}

TEST_CASE("tp_flash_overlap keeps the slices that a file asks for, and other modes have none of them") {
  Scenario scenario = layout_scenario({1, 2, true}, "plain", false);
  scenario.overlap.tp_comm_overlap_disable_fc1 = true;
  scenario.overlap.tp_comm_overlap_cfg = {{"fc2_fprop", flash(3, TpAccumulate::owner)}};
  const Overlap flashes = with_mode(scenario, "tp_flash_overlap", 2).overlap;
  CHECK(flashes.tp_comm_overlap_cfg.at("fc2_fprop") == flash(3, TpAccumulate::owner));
  CHECK(flashes.tp_comm_overlap_cfg.at("qkv_dgrad") == flash(1));
  CHECK_FALSE(flashes.tp_comm_overlap_cfg.contains("fc1_fprop"));
  CHECK(with_mode(scenario, "tp_comm_overlap", 2).overlap.tp_comm_overlap_cfg.empty());
  CHECK(with_mode(scenario, "tp_comm_ring_exchange", 2).overlap.tp_comm_overlap_cfg.at("fc2_fprop") == kRing);
}

TEST_CASE("slices that a rank's rows do not divide into are off, and said to be") {
  Scenario scenario = cut_scenario({1, 3, true}, {"", {{"fc2_fprop", flash(4)}}}, false, 1);
  scenario.overlap.bucket_size = 0;
  const Schedule schedule = build_schedule(scenario);
  REQUIRE_FALSE(schedule.notes.empty());
  CHECK_THAT(schedule.notes.front(), Catch::Contains("fc2_fprop is off: a rank's 2 rows do not divide into"));
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
