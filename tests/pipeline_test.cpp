// Tests that pipeline parallelism, combined with the other axes and with every overlap, trains what one rank trains.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

const Layout kPipelines[] = {
    {1, 1, false, 2},
    {1, 1, false, 3},
    {1, 1, false, 6},
    {2, 1, false, 2},
    {1, 2, true, 2},
    {2, 2, false, 2},
    {1, 1, false, 2, 3},
    {1, 1, false, 3, 2},
    {2, 1, false, 2, 3},
    {1, 2, true, 3, 2},
    {1, 1, false, 2, 1, "Et|tttttL"},
    {1, 1, false, 3, 1, "E|tttttt|L"},
    {1, 1, false, 2, 2, "E|ttt|tt|tL"},
    {1, 1, false, 2, 3, "E|t|tt|t|tt|L"},
    {1, 1, false, 2, 2, "Et|tt|t|ttL", 5},  // 12 = 5 + 5 + 2
    {1, 1, false, 3, 2, "", 12},
    {.pp = 2, .schedule = PipelineSchedule::zb_h1},
    {.dp = 2, .pp = 3, .schedule = PipelineSchedule::zb_h1},
    {.tp = 2, .sequence_parallel = true, .pp = 2, .split = "Et|tttttL", .schedule = PipelineSchedule::zb_h1},
    {.pp = 3, .vp = 2, .schedule = PipelineSchedule::zb_v},
    {.dp = 2, .tp = 2, .pp = 2, .vp = 2, .split = "E|ttt|tt|tL", .schedule = PipelineSchedule::zb_v},
    {.tp = 2, .sequence_parallel = true, .pp = 3, .vp = 2, .schedule = PipelineSchedule::zb_v},
    {.pp = 3, .vp = 2, .schedule = PipelineSchedule::dualpipe_v},
    {.dp = 2, .tp = 2, .pp = 2, .vp = 2, .split = "E|ttt|tt|tL", .schedule = PipelineSchedule::dualpipe_v},
};

void check_pipelines(bool threaded, bool llama) {
  SingleRank single(3);
  check_every_mode(
      single, kPipelines,
      [&](const Layout& layout, const std::string& mode) { return layout_scenario(layout, mode, llama); }, threaded);
}

}  // namespace

TEST_CASE("fp64: every pipeline and mode equals the single rank, serially, GPT", "[serial]") {
  check_pipelines(false, false);
}
TEST_CASE("fp64: every pipeline and mode equals the single rank, serially, Llama", "[serial]") {
  check_pipelines(false, true);
}
TEST_CASE("fp64: every pipeline and mode equals the single rank, on threads") { check_pipelines(true, false); }

TEST_CASE("how messages are issued does not change a bit", "[serial]") {
  Cases cases;
  for (const Layout& layout : kPipelines) {
    if (!cases.takes_next()) continue;
    const Scenario plain = layout_scenario(layout, "plain", false, "fp32");
    const Trained reference = train(plain, 2, false);
    const Schedule schedule = build_schedule(plain);
    for (const bool overlap : {false, true}) {
      Scenario scenario = plain;
      scenario.overlap.batch_p2p_comm = false;
      scenario.overlap.overlap_p2p_comm = scenario.overlap.overlap_p2p_comm_warmup_flush = overlap;
      for (const std::uint64_t seed : {1, 2, 3}) {
        INFO(layout.text() << ", overlap " << overlap << ", seed " << seed);
        const Trained trained = train(scenario, 2, false, seed);
        CHECK(trained.losses == reference.losses);
        CHECK(same_bits(trained.parameters, reference.parameters));
      }
      INFO(layout.text() << ", overlap " << overlap);
      CHECK(verify_equivalent(schedule, build_schedule(scenario), SumOrder::same) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("the head's weight gradient can wait for the flush") {
  Cases cases;
  for (const Layout& layout : {Layout{1, 1, false, 2}, Layout{1, 2, true, 3, 2}, Layout{2, 1, false, 2, 3}})
    for (const std::int64_t limit : {0, 1, 5, 100}) {
      if (!cases.takes_next()) continue;
      Scenario scenario = layout_scenario(layout, "overlap_p2p_comm", false);
      const Trained reference = train(scenario, 2, false);
      scenario.overlap.defer_embedding_wgrad_compute = true;
      scenario.overlap.wgrad_deferral_limit = limit;
      INFO(layout.text() << ", limit " << limit);
      // When some gradients are deferred and some are not, the sum over micro-batches has another order.
      for (const bool threaded : {false, true})
        CHECK(worst_relative_difference(train(scenario, 2, threaded).parameters, reference.parameters) <
              (limit == 0 || limit > 12 ? 1e-300 : 1e-8));
    }
}

TEST_CASE("the head's weight gradient can wait for the flush whatever else overlaps") {
  Cases cases;
  for (const Layout& layout : {Layout{1, 2, true, 2}, Layout{2, 2, true, 2, 3}})
    for (const char* mode : {"tp_comm_bulk", "tp_comm_overlap", "tp_comm_ring_exchange", "overlap_param_gather"})
      for (const bool scatters_dgrad : {false, true}) {
        if (!cases.takes_next()) continue;
        Scenario scenario = layout_scenario(layout, mode, false);
        const Trained reference = train(scenario, 2, false);
        scenario.overlap.defer_embedding_wgrad_compute = true;
        scenario.overlap.tp_comm_overlap_rs_dgrad = scatters_dgrad;
        INFO(layout.text() << ", " << mode << ", rs_dgrad " << scatters_dgrad);
        CHECK(worst_relative_difference(train(scenario, 2, false).parameters, reference.parameters) < 1e-8);
      }
}

TEST_CASE("hardware queues order starts and change nothing else") {
  Cases cases, on_threads(kThreadedStride);
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2, true}, Layout{1, 1, false, 2, 3}, Layout{2, 2, true, 2}})
    for (const char* mode : {"overlap_param_gather", "tp_comm_overlap", "overlap_p2p_comm"}) {
      if (!cases.takes_next()) continue;
      Scenario scenario = layout_scenario(layout, mode, false);
      const Trained reference = train(scenario, 2, false);
      for (const std::int64_t queues : {1, 2, 8}) {
        scenario.cluster.cuda_device_max_connections = queues;
        INFO(layout.text() << ", " << mode << ", " << queues << " queues");
        CHECK(same_bits(train(scenario, 2, false, 7).parameters, reference.parameters));
        if (on_threads.takes_next()) CHECK(same_bits(train(scenario, 2, true).parameters, reference.parameters));
      }
    }
}

TEST_CASE("layers are recomputed chunk by chunk") {
  Cases cases, on_threads(kThreadedStride);
  for (const Layout& layout :
       {Layout{1, 1, false, 2}, Layout{1, 1, false, 2, 3}, Layout{1, 1, false, 2, 2, "E|ttt|tt|tL"}})
    for (const Recompute& recompute : {Recompute{Recompute::Granularity::selective},
                                       Recompute{Recompute::Granularity::full, Recompute::Method::uniform, 2},
                                       Recompute{Recompute::Granularity::full, Recompute::Method::block, 1}})
      for (const char* mode : {"plain", "overlap_p2p_comm"}) {
        if (!cases.takes_next()) continue;
        Scenario scenario = layout_scenario(layout, mode, false);
        const Trained reference = train(scenario, 2, false);
        const std::int64_t kept = plan_memory(build_schedule(scenario)).peak_bytes();
        scenario.training.recompute = recompute;
        INFO(layout.text() << ", " << mode);
        CHECK(same_bits(train(scenario, 2, on_threads.takes_next()).parameters, reference.parameters));
        CHECK(plan_memory(build_schedule(scenario)).peak_bytes() <= kept);
      }
}

namespace {

// Returns the activations of a stage's layers, in halves of the activations of one micro-batch with W in B.
std::int64_t halves_of_activations(const Layout& layout, std::size_t stage) {
  const auto bytes_of = [](const Layout& of, std::size_t role) {
    const Schedule schedule = build_schedule(layout_scenario(of, "plain", true));
    const MemoryPlan plan = plan_memory(schedule);
    std::int64_t bytes = 0;
    for (StorageId s = 0; s < schedule.storages.size(); ++s) {
      const Storage& storage = schedule.storages[s];
      const bool is_of_layer =
          storage.name.find(".l") != std::string::npos && storage.name.find(".l6") == std::string::npos;
      if (storage.kind == BufferKind::activation && is_of_layer && plan.roles[role].has(s)) bytes += storage.bytes();
    }
    return bytes;
  };
  // The last stage of 1F1B keeps one micro-batch.
  Layout plain = layout;
  plain.schedule = PipelineSchedule::one_f_one_b;
  plain.vp = 1;
  const std::int64_t bytes = 2 * bytes_of(layout, stage), one = bytes_of(plain, static_cast<std::size_t>(plain.pp) - 1);
  REQUIRE(bytes % one == 0);
  return bytes / one;
}

}  // namespace

TEST_CASE("zero-bubble schedules keep as many activations as docs/parallelism.md says") {
  for (const std::size_t stage : {0, 1, 2}) {
    INFO("stage " << stage);
    const auto s = static_cast<std::int64_t>(stage);
    CHECK(halves_of_activations({.pp = 3}, stage) == 2 * (3 - s));
    CHECK(halves_of_activations({.pp = 3, .schedule = PipelineSchedule::zb_h1}, stage) == 2 * (3 + 1));
    CHECK(halves_of_activations({.pp = 3, .vp = 2, .schedule = PipelineSchedule::zb_v}, stage) ==
          (2 * 3 - s + 1) + (s + 1 < 3 ? s + 3 : s + 2));
    CHECK(halves_of_activations({.pp = 3, .vp = 2, .schedule = PipelineSchedule::dualpipe_v}, stage) ==
          2 * 3 + (s == 0 ? 4 : 5));
  }
}

TEST_CASE("when weight gradients come does not change what is trained") {
  Cases cases, on_threads(kThreadedStride);
  for (const Layout& layout :
       {Layout{.pp = 3, .schedule = PipelineSchedule::zb_h1},
        Layout{.pp = 3, .vp = 2, .schedule = PipelineSchedule::zb_v},
        Layout{.pp = 3, .vp = 2, .schedule = PipelineSchedule::dualpipe_v},
        Layout{.tp = 2,
        .sequence_parallel = true,
        .pp = 2,
        .vp = 2,
        .split = "Et|tt|t|ttL",
        .schedule = PipelineSchedule::zb_v},
        Layout{.pp = 2, .cp = 2, .schedule = PipelineSchedule::zb_h1},
        Layout{.pp = 2, .cp = 2, .cp_type = {CpCommType::a2a, CpCommType::p2p}, .schedule = PipelineSchedule::zb_h1}})
    for (const bool drops : {false, true})
      for (const auto granularity : {Recompute::Granularity::none, Recompute::Granularity::selective})
        for (const char* mode : {"plain", "overlap_p2p_comm"}) {
          if (!cases.takes_next()) continue;
          Scenario scenario = layout_scenario(layout, mode, false);
          scenario.training.recompute.granularity = granularity;
          if (layout.cp == 1 && drops) scenario.training.attention_backend = AttentionBackend::unfused;
          if (drops) scenario.model.hidden_dropout = scenario.model.attention_dropout = 0.25;
          Scenario reference = scenario;
          reference.parallel.pipeline_schedule = PipelineSchedule::one_f_one_b;
          reference.parallel.virtual_pipeline_model_parallel_size = 1;
          reference.parallel.pipeline_model_parallel_layout = "";
          INFO(layout.text() << ", " << mode << (drops ? ", dropout" : ""));
          const Trained expected = train(reference, 2, false), trained = train(scenario, 2, on_threads.takes_next());
          for (std::size_t step = 0; step < 2; ++step)
            CHECK(trained.losses[step] == Approx(expected.losses[step]).epsilon(1e-10));
          CHECK(worst_relative_difference(trained.gradients, expected.gradients) < 1e-10);
        }
}

// ---- smallest layouts of faults that random layouts have found ----

namespace {

// Returns "" when the schedule can be planned and verifies.
std::string fault_of(const Scenario& scenario) {
  try {
    const Schedule schedule = build_schedule(scenario);
    const MemoryPlan plan = plan_memory(schedule);
    require_verified(schedule, &plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Scenario small_pipeline(const Layout& layout, const char* mode, std::int64_t layers, std::int64_t micro_batches) {
  Scenario scenario = layout_scenario(layout, mode, false, "fp64", 1, layout.dp * micro_batches);
  scenario.model.num_layers = layers;
  return scenario;
}

}  // namespace

TEST_CASE("layers are recomputed in groups, with several chunks") {
  Scenario scenario = small_pipeline({1, 1, false, 2, 2}, "plain", 8, 4);
  scenario.training.recompute = {Recompute::Granularity::full, Recompute::Method::uniform, 2};
  CHECK(fault_of(scenario) == "");
}

TEST_CASE("the last messages of a step are over before the next uses their buffers, also with overlap_param_gather") {
  Scenario scenario = small_pipeline({2, 1, false, 2}, "overlap_param_gather", 2, 1);
  scenario.overlap.batch_p2p_comm = false;
  CHECK(fault_of(scenario) == "");
}

TEST_CASE("overlapped, an embedding alone is summed over tensor-parallel ranks before the next is looked up") {
  CHECK(fault_of(small_pipeline({1, 2, true, 2, 1, "E|tL"}, "overlap_p2p_comm", 1, 2)) == "");
}

TEST_CASE("overlapped, an embedding alone is sent from its slot, which is free only then") {
  Scenario scenario = small_pipeline({2, 1, false, 3, 1, "E|t|L"}, "overlap_p2p_comm", 1, 4);
  scenario.overlap.overlap_p2p_comm_warmup_flush = true;
  CHECK(fault_of(scenario) == "");
}

// Three stages and three groups of micro-batches are the smallest case.
TEST_CASE("an embedding alone is summed before it is sent, also with a backward pass in between") {
  for (const bool batched : {false, true}) {
    Scenario scenario = small_pipeline({1, 2, false, 3, 2, "E|t|t|t|t|L"}, "plain", 4, 9);
    scenario.overlap.batch_p2p_comm = batched;
    CHECK(fault_of(scenario) == "");
  }
}

// The neighbour with which a rank exchanges depends on whether the rank is even, so one rank does not stand for all.
TEST_CASE("aggregated ring exchange with a rank on each device") {
  Scenario scenario = layout_scenario({1, 4, true}, "tp_comm_overlap", false, "fp64", 1, 1);
  scenario.model.ffn_hidden_size = 16;
  scenario.model.seq_length = 8;
  scenario.model.max_position_embeddings = 8;
  scenario.overlap.tp_comm_overlap_cfg["qkv_fprop"] = {TpMethod::ring_exchange, true};
  CHECK(fault_of(scenario) == "");
  scenario.cluster.ranks_per_device = 1;
  CHECK(fault_of(scenario) == "");
}

}  // namespace stretto::testing
