#include "tests/single_rank.hpp"

#include <catch2/catch.hpp>

#include "model/scenario/keys.hpp"
#include "model/training_flops.hpp"

namespace stretto::testing {

Scenario on_single_rank(Scenario scenario, const std::string& precision) {
  // The balance loss of all replicas' micro-batches is that of one micro-batch of all their sequences.
  if (scenario.model.experts.balances_replicas())
    scenario.training.micro_batch_size *= scenario.parallel.data_parallel_size;
  scenario.parallel = {};
  scenario.overlap = {};
  Training& training = scenario.training;
  training.precision = precision;
  training.recompute = {};
  training.attention_backend = AttentionBackend::fused;
  training.gelu_fusion = training.bias_gradient_fusion = training.residual_fusion = training.norm_gradient_fusion =
      training.gelu_bias_gradient_fusion = false;
  scenario.model.padded_vocab_size = scenario.model.vocab_size;
  return scenario;
}

namespace {

// Returns all that distinguishes one model and its batch from another.
std::string text_of(const Scenario& scenario) {
  std::string text = std::to_string(scenario.training.global_batch_size) + " " +
                     std::to_string(scenario.training.micro_batch_size) + (scenario.training.frozen_base ? "f" : "");
  for (const ScenarioKey& key : scenario_keys_of("model")) text += " " + value_of(key, scenario).dump();
  for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer)
    text += " " + std::string(scenario.model.layer(layer).suffix());
  return text;
}

}  // namespace

const Trained& SingleRank::reference(const Scenario& scenario) {
  const Scenario one = on_single_rank(scenario, "fp64");
  const auto [known, fresh] = known_.try_emplace(text_of(one));
  if (fresh) known->second = train(one, steps_, false, 1, change_);
  REQUIRE(std::isfinite(known->second.losses.back()));
  return known->second;
}

void SingleRank::check_bf16(Scenario scenario) {
  scenario.training.precision = "bf16";
  const Trained one = train(on_single_rank(scenario, "bf16"), 1, false, 1, change_);
  CHECK(train(scenario, 1, false, 1, change_).losses.front() == Approx(one.losses.front()).epsilon(2e-2));
}

void SingleRank::check(const Scenario& scenario, bool threaded) {
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  const Trained trained = train_schedule(schedule, plan, scenario, steps_, threaded, 1, change_);
  const Trained& expected = reference(scenario);
  for (std::size_t step = 0; step < trained.losses.size(); ++step) {
    CHECK(trained.losses[step] == Approx(expected.losses[step]).epsilon(1e-10));
    CHECK(trained.norms[step] == Approx(expected.norms[step]).epsilon(1e-10));
  }
  CHECK(worst_relative_difference(trained.gradients, expected.gradients) < 1e-10);
  // AdamW divides by |g| + 1e-8, which magnifies the rounding of gradients that are zero in exact arithmetic (those of
  // the biases of k).
  CHECK(worst_relative_difference(trained.parameters, expected.parameters) < 1e-8);
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
    CHECK(trained.allocated_bytes[static_cast<std::size_t>(rank)] ==
          plan.roles[schedule.role_of(schedule.mesh.coordinates_of(rank))].bytes);
}

void check_every_mode(SingleRank& single, std::span<const Layout> layouts, const ScenarioOf& scenario_of,
                      bool threaded) {
  Cases cases(threaded ? kThreadedStride : 1);
  for (const Layout& layout : layouts)
    for (const OverlapMode& mode : overlap_modes()) {
      const Scenario scenario = scenario_of(layout, mode.name);
      if (!mode.applies(scenario.parallel) || !cases.takes_next()) continue;
      INFO(layout.text() << ", " << mode.name);
      single.check(scenario, threaded);
    }
}

void check_what_goes_with(SingleRank& single, const ScenarioOf& scenario_of) {
  Cases cases;
  const auto check = [&](const Scenario& scenario, const std::string& text, bool threaded = false) {
    if (!cases.takes_next()) return;
    INFO(text);
    single.check(scenario, threaded);
  };
  for (const Layout& layout : {Layout{1, 1}, Layout{1, 2, true}, Layout{2, 1, false, 2}}) {
    const Scenario plain = scenario_of(layout, "plain");
    check(plain, layout.text() + ", threads", true);
    for (const bool whole_layers : {false, true})
      for (const auto granularity : {Recompute::Granularity::selective, Recompute::Granularity::full}) {
        Scenario scenario = plain;
        scenario.training.recompute = {granularity, Recompute::Method::uniform, 2, whole_layers};
        scenario.training.residual_fusion = scenario.training.norm_gradient_fusion = whole_layers;
        check(scenario,
              layout.text() + ", recomputes " + name_of(granularity) + (whole_layers ? ", whole layers" : ""));
      }
    if (cases.takes_next()) single.check_bf16(plain);
  }
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2, true}, Layout{2, 1, false, 2}})
    for (const Sharding sharding : {Sharding::no_shard, Sharding::optim_grads, Sharding::optim_grads_params}) {
      Scenario scenario = scenario_of(layout, "plain");
      scenario.parallel.data_parallel_sharding_strategy = sharding;
      scenario.overlap.fsdp_comm_overlap = sharding == Sharding::optim_grads_params;
      check(scenario, layout.text() + ", " + name_of(sharding));
    }
}

void check_recomputed(SingleRank& single, const ScenarioOf& scenario_of,
                      const std::vector<std::vector<Recompute::Module>>& lists, bool saves) {
  Cases cases;
  for (const Layout& layout : {Layout{1, 1}, Layout{1, 2, true}, Layout{2, 1, false, 2}})
    for (const auto& modules : lists)
      for (const bool whole_layers : {false, true}) {
        if (!cases.takes_next()) continue;
        Scenario scenario = scenario_of(layout, "plain");
        const std::int64_t kept = plan_memory(build_schedule(scenario)).peak_bytes();
        scenario.training.recompute = {Recompute::Granularity::selective, Recompute::Method::uniform, 1, whole_layers,
                                       modules};
        INFO(layout.text() << ", recomputes " << name_of(modules.front()) << " and " << modules.size() - 1 << " more"
                           << (whole_layers ? ", whole functions" : ""));
        single.check(scenario);
        const std::int64_t needed = plan_memory(build_schedule(scenario)).peak_bytes();
        CHECK((saves ? needed < kept : needed <= kept));
      }
}

void check_flops(const Scenario& scenario) {
  double flops = 0;
  for (const BoundProgram& program : bind_step(build_schedule(scenario)).programs)
    for (std::uint32_t op = 0; op < program.ops.size(); ++op) flops += model_flops(program.work_of(op));
  const double expected =
      training_flops_per_sequence(scenario.model).model * double(scenario.training.global_batch_size);
  CHECK(flops == Approx(expected).epsilon(1e-12));
}

}  // namespace stretto::testing
