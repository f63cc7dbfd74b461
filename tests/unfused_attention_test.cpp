// Tests that unfused attention trains what fused attention trains.
#include <catch2/catch.hpp>

#include "model/verify/dataflow.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using Granularity = Recompute::Granularity;

Scenario unfused(Scenario scenario) {
  scenario.training.attention_backend = AttentionBackend::unfused;
  return scenario;
}

std::vector<std::string> attention_of(const Schedule& schedule, const std::string& block) {
  std::vector<std::string> names;
  for (const Block& b : schedule.blocks)
    if (b.name == block)
      for (const OpId op : b.ops)
        if (schedule.operations[op].name.starts_with("attention.")) names.push_back(schedule.operations[op].name);
  return names;
}

void check_same_training(const Scenario& scenario, bool threaded) {
  const Trained fused = train(scenario, 2, threaded), parts = train(unfused(scenario), 2, threaded);
  for (std::size_t step = 0; step < 2; ++step) {
    CHECK(parts.losses[step] == Approx(fused.losses[step]).epsilon(1e-10));
    CHECK(parts.norms[step] == Approx(fused.norms[step]).epsilon(1e-10));
  }
  CHECK(worst_relative_difference(parts.gradients, fused.gradients) < 1e-10);
  CHECK(worst_relative_difference(parts.parameters, fused.parameters) < 1e-8);
  const Schedule schedule = build_schedule(unfused(scenario));
  const MemoryPlan plan = plan_memory(schedule);
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
    CHECK(parts.allocated_bytes[static_cast<std::size_t>(rank)] ==
          plan.roles[schedule.role_of(schedule.mesh.coordinates_of(rank))].bytes);
}

}  // namespace

TEST_CASE("fused and unfused attention have the same loss and gradients") {
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout : {Layout{1, 1}, Layout{1, 2}, Layout{2, 2, true}, Layout{1, 3}, Layout{1, 2, false, 2}})
      for (const double dropout : {0.0, 0.25})
        for (const Granularity granularity : {Granularity::none, Granularity::selective, Granularity::full}) {
          if (!cases.takes_next()) continue;
          Scenario scenario = layout_scenario(layout, "plain", llama, "fp64", 2);
          scenario.model.attention_dropout = dropout;
          scenario.training.recompute.granularity = granularity;
          INFO(layout.text() << (llama ? " llama" : " gpt") << ", dropout " << dropout << ", recomputes "
                             << static_cast<int>(granularity));
          check_same_training(scenario, layout.pp > 1);
        }
}

TEST_CASE("unfused attention goes with whole recomputed layers, groups of them and every overlap", "[serial]") {
  Cases cases;
  for (const OverlapMode& mode : overlap_modes()) {
    Scenario scenario = layout_scenario({2, 2, true}, mode.name, true);
    if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
    INFO(mode.name);
    scenario.model.num_layers = 4;
    scenario.model.attention_dropout = scenario.model.hidden_dropout = 0.1;
    scenario.training.recompute = {Granularity::full, Recompute::Method::uniform, 2, true};
    check_same_training(scenario, false);
  }
}

TEST_CASE("what unfused attention is made of") {
  using Names = std::vector<std::string>;
  Scenario scenario = unfused(layout_scenario({1, 1}, "plain", false));
  scenario.model.attention_dropout = 0.1;
  scenario.training.recompute.granularity = Granularity::selective;
  const Names forward = {"attention.scores.fprop", "attention.softmax.fprop", "attention.dropout.fprop",
                         "attention.context.fprop"};
  Names backward, parts = {"attention.dv.dgrad",      "attention.dp.dgrad", "attention.dropout.dgrad",
                           "attention.softmax.dgrad", "attention.dq.dgrad", "attention.dk.dgrad"};
  for (const std::string& name : forward) backward.push_back(name + ".recompute");
  backward.insert(backward.end(), parts.begin(), parts.end());
  const Schedule dropping = build_schedule(scenario);
  CHECK(attention_of(dropping, "layer.forward") == forward);
  CHECK(attention_of(dropping, "layer.backward") == backward);
  CHECK_FALSE(dropping.find_tensor("attention.lse"));
  scenario.model.attention_dropout = 0;
  scenario.training.recompute = {};
  const Schedule plain = build_schedule(scenario);
  CHECK(attention_of(plain, "layer.forward") ==
        Names{"attention.scores.fprop", "attention.softmax.fprop", "attention.context.fprop"});
  CHECK(attention_of(plain, "layer.backward").size() == 5);
  CHECK_FALSE(plain.find_tensor("attention.dropped"));
  CHECK_FALSE(plain.find_tensor("attention.mask"));
}

TEST_CASE("what a profile does trains on the host to the loss of the scenario without the profile") {
  const std::string attention = "attention_dropout = 0.1\nhidden_dropout = 0.1\nmax_position_embeddings = 9\n";
  const std::string llama =
      "normalization = \"RMSNorm\"\nswiglu = true\nposition_embedding_type = \"rope\"\nadd_bias_linear = false\n"
      "untie_embeddings_and_output_weights = true\n";
  const std::string selects = "recompute_granularity = \"selective_op\"\n",
                    repeats = "recompute_granularity = \"full\"\n";
  struct Case {
    std::string profile, model, recompute;
  };
  for (const Case& c :
       {Case{"megatron-2021", attention, ""}, Case{"megatron-2022", attention, ""},
        Case{"megatron-deepspeed", attention, ""}, Case{"llm-foundry", "", repeats}, Case{"nemo-dgxc", llama, ""},
        Case{"torchtitan", llama, selects}, Case{"torchtitan-compile", llama, repeats}}) {
    INFO(c.profile);
    const std::string model =
        "[model]\nnum_layers = 2\nhidden_size = 24\nnum_attention_heads = 6\nseq_length = 8\nvocab_size = 32\n" +
        c.model + "[training]\nglobal_batch_size = 4\nprecision = \"fp64\"\ninit_method_std = 0.2\n";
    const std::string layout =
        "[parallel]\ndata_parallel_size = 2\ntensor_model_parallel_size = 2\n[overlap]\ngrad_reduce_in_fp32 = true\n";
    const Scenario with = parse_scenario("profile = \"" + c.profile + "\"\n" + model + c.recompute + layout, "with"),
                   without = parse_scenario(model + layout, "without");
    CHECK((with.training.attention_backend == AttentionBackend::unfused) == (c.model == attention));
    CHECK(without.training.attention_backend == AttentionBackend::fused);
    const Trained a = train(with, 2, true), b = train(without, 2, true);
    CHECK(a.losses[0] == Approx(b.losses[0]).epsilon(1e-10));
    CHECK(a.losses[1] == Approx(b.losses[1]).epsilon(1e-8));
    // Where parameters are cut, gradients belong to other shards.
    if (!with.parallel.shards_gradients()) CHECK(worst_relative_difference(a.gradients, b.gradients) < 1e-6);
  }
}

TEST_CASE("unfused attention in bf16 rounds more often") {
  for (const bool llama : {false, true}) {
    Scenario scenario = layout_scenario({1, 2}, "plain", llama, "bf16", 2);
    scenario.model.attention_dropout = 0.1;
    const Trained fused = train(scenario, 1, true), parts = train(unfused(scenario), 1, true);
    CHECK(parts.losses[0] == Approx(fused.losses[0]).epsilon(0.01));
    CHECK(worst_relative_difference(parts.gradients, fused.gradients) < 0.1);
  }
}

// Each operation is run in a wrong order, or on operands of another operation.
TEST_CASE("the verifier rejects unfused attention that is out of order or reads the wrong thing") {
  Scenario scenario = unfused(layout_scenario({1, 1}, "plain", false));
  scenario.model.attention_dropout = 0.1;
  const Schedule schedule = build_schedule(scenario);
  const DataFlow flow = trace_dataflow(schedule, SumOrder::same);
  const auto is_rejected = [&](const Schedule& changed) {
    try {
      const MemoryPlan plan = plan_memory(changed);
      if (!verify(changed, &plan).empty()) return true;
      return !differences(flow, trace_dataflow(changed, SumOrder::same)).empty();
    } catch (const Error&) {
      return true;
    }
  };
  CHECK_FALSE(is_rejected(schedule));
  int swapped = 0, redirected = 0;
  for (std::size_t b = 0; b < schedule.blocks.size(); ++b)
    for (std::size_t i = 0; i + 1 < schedule.blocks[b].ops.size(); ++i) {
      const auto is_part = [&](std::size_t at) {
        return schedule.operations[schedule.blocks[b].ops[at]].name.starts_with("attention.");
      };
      if (!is_part(i) || !is_part(i + 1)) continue;
      const std::string first = schedule.operations[schedule.blocks[b].ops[i]].name;
      if (first == "attention.dv.dgrad" || first == "attention.dq.dgrad") continue;  // these two are independent
      Schedule changed = schedule;
      std::swap(changed.blocks[b].ops[i], changed.blocks[b].ops[i + 1]);
      INFO(first << " changes places with the next");
      CHECK(is_rejected(changed));
      ++swapped;
    }
  // Each operand is replaced by another tensor of equal shape.
  for (std::size_t o = 0; o < schedule.operations.size(); ++o) {
    const Operation& operation = schedule.operations[o];
    if (!operation.name.starts_with("attention.")) continue;
    for (std::size_t a = 0; a < operation.accesses.size(); ++a) {
      const TensorId own = operation.accesses[a].view.tensor;
      for (const char* other : {"attention.probabilities", "attention.dropped", "attention.scores",
                                "d_attention.scores", "d_attention.dropped"}) {
        const auto id = schedule.find_tensor(other);
        REQUIRE(id);
        const Tensor &from = schedule.tensors[own], &to = schedule.tensors[*id];
        if (*id == own || from.rows != to.rows || from.cols != to.cols) continue;
        Schedule changed = schedule;
        View& view = changed.operations[o].accesses[a].view;
        view.tensor = *id;
        view.layer = to.layers > 1 ? Expr(Coord::layer) : Expr(0);
        view.slot = 0;
        INFO(operation.name << " has " << other << " for " << from.name);
        CHECK(is_rejected(changed));
        ++redirected;
      }
    }
  }
  CHECK(swapped == 6);
  CHECK(redirected > 40);
}

}  // namespace stretto::testing
