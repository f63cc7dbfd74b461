// Tests that recomputing activations changes what is kept and how often it is computed, never the numbers.
#include "model/recompute.hpp"

#include <catch2/catch.hpp>

#include "model/training_flops.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using Granularity = Recompute::Granularity;
using Method = Recompute::Method;
using Module = Recompute::Module;

Scenario scenario_of(const Layout& layout, const Recompute& recompute, bool llama, const std::string& mode = "plain") {
  Scenario scenario = layout_scenario(layout, mode, llama, "fp32", 2);
  scenario.model.num_layers = 5;
  scenario.training.recompute = recompute;
  return scenario;
}

const Recompute kSettings[] = {
    {Granularity::selective, Method::uniform, 1},
    {Granularity::selective_op, Method::uniform, 1},
    {Granularity::full, Method::uniform, 1},
    {Granularity::full, Method::uniform, 2},
    {Granularity::full, Method::uniform, 5},
    {Granularity::full, Method::block, 1},
    {Granularity::full, Method::block, 3},
    {Granularity::selective, Method::uniform, 1, false, {Module::mlp}},
    {Granularity::selective, Method::uniform, 1, true, {Module::core_attn, Module::mlp}},
};

std::string text(const Recompute& r) {
  return std::string(r.granularity == Granularity::full        ? "full"
                     : r.granularity == Granularity::selective ? "selective"
                                                               : "selective_op") +
         (r.method == Method::block ? " block " : " uniform ") + std::to_string(r.num_layers) +
         (r.repeats(Module::mlp) ? " mlp" : "");
}

// Returns 2·m·n·k of GEMMs and the executed FLOPs of attention, for one rank's step.
double executed_flops(const Schedule& schedule) {
  double flops = 0;
  for (const Call& call : schedule.programs.front().order)
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i) {
      const Work& work = schedule.operations[schedule.blocks[call.block].ops[i]].work;
      if (const auto* a = std::get_if<Attention>(&work))
        flops += (a->pass == Pass::forward ? 2 : 5) * 2.0 * double(a->batch * a->heads) * double(a->seq * a->seq) *
                 double(a->head_dim) * causal_attention_share(a->seq);
      else if (std::holds_alternative<AttentionProduct>(work))
        flops += 2 * model_flops(work);  // includes the masked half
      else
        flops += model_flops(work);
    }
  return flops;
}

}  // namespace

TEST_CASE("recomputing gives the same bits, where it runs the same products, and needs no more memory") {
  Cases cases, on_threads(kThreadedStride);
  for (const bool llama : {false, true})
    for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{2, 2, true}}) {
      const Scenario kept = scenario_of(layout, {}, llama);
      const Trained reference = train(kept, 2, false);
      const std::int64_t bytes = plan_memory(build_schedule(kept)).peak_bytes();
      for (const Recompute& recompute : kSettings) {
        if (!cases.takes_next()) continue;
        INFO(layout.text() << (llama ? " llama " : " gpt ") << text(recompute));
        const Scenario scenario = scenario_of(layout, recompute, llama);
        const Trained trained = train(scenario, 2, on_threads.takes_next());
        if (llama && recompute.granularity == Granularity::selective_op) {
          // It computes gate and up in two products, which some BLAS libraries round differently from one product of
          // both.
          CHECK(worst_relative_difference(trained.parameters, reference.parameters) < 1e-5);
        } else {
          CHECK(trained.losses == reference.losses);
          CHECK(same_bits(trained.parameters, reference.parameters));
        }
        // Every layer of a group has an instance of a layer's activations: nothing is saved where the group has all
        // layers.
        const bool saves = recompute.granularity != Granularity::full ||
                           (recompute.method == Method::uniform ? recompute.num_layers < 5 : recompute.num_layers > 1);
        const std::int64_t needed = plan_memory(build_schedule(scenario)).peak_bytes();
        if (saves)
          CHECK(needed < bytes);
        else
          CHECK(needed == bytes);
      }
    }
}

TEST_CASE("recomputing goes with the overlap of data- and tensor-parallel communication", "[serial]") {
  Cases cases;
  for (const Recompute& recompute : kSettings)
    for (const char* mode : {"overlap_param_gather", "tp_comm_bulk"}) {
      if (!cases.takes_next()) continue;
      INFO(text(recompute) << " " << mode);
      const Layout layout{2, 2, true};
      CHECK(same_bits(train(scenario_of(layout, recompute, false, mode), 2, true).parameters,
                      train(scenario_of(layout, recompute, false), 2, false).parameters));
    }
}

TEST_CASE("HFU counts what is recomputed") {
  for (const bool llama : {false, true}) {
    const Scenario kept = scenario_of({1, 1}, {}, llama);
    for (const Recompute& recompute : kSettings) {
      INFO(text(recompute) << (llama ? " llama" : " gpt"));
      for (const AttentionBackend backend : {AttentionBackend::fused, AttentionBackend::unfused}) {
        const auto executed = [&](const Recompute& with) {
          Scenario scenario = scenario_of({1, 1}, with, llama);
          scenario.training.attention_backend = backend;
          return executed_flops(build_schedule(scenario));
        };
        const double sequences = double(kept.training.global_batch_size);
        CHECK(executed(recompute) - executed({}) ==
              Approx(sequences * recompute_flops_per_sequence(kept.model, recompute, backend, 1)));
        CHECK(executed({}) == Approx(sequences * training_flops_per_sequence(kept.model, false, backend).hardware));
      }
    }
  }
}

}  // namespace stretto::testing
