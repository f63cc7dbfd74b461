// Tests of models with layers of two kinds, with an MLP and without, and models with heads of their own width and norms
// of q and k: they train in every layout what one rank trains.
#include <catch2/catch.hpp>

#include "base/rng.hpp"
#include "model/recompute.hpp"
#include "model/step_size.hpp"
#include "model/training_flops.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

using Granularity = Recompute::Granularity;

enum class Model { two_kinds, normalised_heads };

// The second and the fifth of six layers have no MLP.
Scenario scenario_of(Model kind, const Layout& layout, const std::string& mode, bool llama) {
  Scenario scenario = layout_scenario(layout, mode, llama);
  Transformer& model = scenario.model;
  model.num_layers = 6;
  if (kind == Model::normalised_heads) {
    model.kv_channels = 6;
    model.qk_layernorm = true;
  } else {
    model.layers.assign(6, {});
    model.layers[1].mlp = model.layers[4].mlp = MlpKind::none;
  }
  std::vector<CpCommType>& types = scenario.parallel.cp_comm_type;
  for (std::size_t layer = types.size(); types.size() > 1 && types.size() < 6; ++layer)
    types.push_back(layout.cp_type[layer % layout.cp_type.size()]);
  return scenario;
}

Scenario mixed(const Layout& layout, const std::string& mode, bool llama) {
  return scenario_of(Model::two_kinds, layout, mode, llama);
}

// Norms of heads begin with weights other than 1 and 0.
void change_norms(exec::FullTensor& tensor) {
  if (tensor.name.find("_norm.") == std::string::npos && tensor.name.find("sinks") == std::string::npos) return;
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] += 0.1 * normal(99, stream_of(tensor.name), i);
}

}  // namespace

TEST_CASE("kinds of layers and norms of heads: every layout and mode equals the single rank", "[serial][layer_kinds]") {
  const Model kind = GENERATE(Model::two_kinds, Model::normalised_heads);
  const bool llama = GENERATE(false, true);
  const Layout layouts[] = {{1, 1},
                            {2, 1},
                            {2, 2},
                            {1, 2, true},
                            {2, 1, false, 2},
                            {1, 2, true, 3},
                            {1, 1, false, 2, 3},
                            {2, 1, false, 2, 1, "", 0, 1, {CpCommType::p2p}, PipelineSchedule::zb_h1},
                            {1, 1, false, 1, 1, "", 0, 2, {CpCommType::p2p, CpCommType::a2a}},
                            {1, 2, true, 1, 1, "", 0, 2, {CpCommType::all_gather}}};
  SingleRank single(2, change_norms);
  const ScenarioOf of = [&](const Layout& layout, const std::string& mode) {
    return scenario_of(kind, layout, mode, llama);
  };
  INFO((llama ? "llama" : "gpt"));
  check_every_mode(single, layouts, of);
  check_what_goes_with(single, of);
  Cases cases;
  for (const Layout& layout : {Layout{1, 1}, Layout{1, 2, true}, Layout{2, 1, false, 2}})
    for (const bool whole_layers : {false, true}) {
      if (!cases.takes_next()) continue;
      Scenario scenario = of(layout, "plain");
      scenario.training.recompute = {Granularity::selective_op, Recompute::Method::uniform, 2, whole_layers};
      scenario.training.residual_fusion = scenario.training.norm_gradient_fusion = whole_layers;
      INFO(layout.text() << ", operations recomputed");
      single.check(scenario);
    }
}

TEST_CASE("kinds of attention: every layout equals the single rank", "[serial][layer_kinds]") {
  using enum CpCommType;
  const Layout layouts[] = {{1, 1},
                            {1, 2, true},
                            {2, 2},
                            {2, 1, false, 2},
                            {1, 2, true, 3},
                            {2, 1, false, 2, 1, "", 0, 1, {p2p}, PipelineSchedule::zb_h1},
                            {1, 1, false, 1, 1, "", 0, 2, {a2a}},
                            {1, 2, true, 1, 1, "", 0, 2, {a2a}}};
  SingleRank single(2, change_norms);
  Cases cases;
  for (const bool has_window : {true, false})
    for (const Layout& layout : layouts) {
      if (!cases.takes_next()) continue;
      Scenario scenario = layout_scenario(layout, "plain", true);
      Transformer& model = scenario.model;
      model.num_layers = 6;
      model.softmax_type = SoftmaxType::learnable;
      model.no_rope_freq = {3};
      model.add_qkv_bias = true;
      (has_window ? model.sliding_window : model.attention_chunk_size) = 3;
      model.window_attn_skip_freq = {2};
      model.attn_logit_softcapping = has_window ? 0 : 1.5;
      model.norm_places = has_window ? NormPlaces::both : NormPlaces::post;
      INFO(layout.text() << (has_window ? ", windows" : ", chunks"));
      single.check(scenario);
      scenario.training.recompute = {Granularity::full, Recompute::Method::uniform, 1, has_window};
      if (scenario.parallel.pipeline_schedule == PipelineSchedule::one_f_one_b) single.check(scenario);
    }
}

TEST_CASE("gradients with norms of heads are the slopes of the loss", "[layer_kinds]") {
  Cases cases;
  for (const bool llama : {false, true}) {
    Scenario scenario = scenario_of(Model::normalised_heads, {}, "plain", llama);
    scenario.model.num_layers = 2;
    scenario.model.position_embedding_type = PositionEmbedding::rope;
    // Returns the loss of the first step, with `much` of a random direction added to one tensor of the weights.
    const auto step_with = [&](const std::string& name, double much) {
      return train(scenario, 1, false, 1, [&](exec::FullTensor& tensor) {
        const double factor = tensor.name == name ? much : 0;
        for (std::size_t i = 0; i < tensor.values.size(); ++i)
          tensor.values[i] += 0.1 * normal(98, stream_of(tensor.name), i) + factor * normal(99, 1, i);
      });
    };
    const Trained trained = step_with("", 0);
    for (const exec::FullTensor& gradient : trained.gradients) {
      if (!gradient.name.starts_with("h.1.") || !cases.takes_next()) continue;
      double slope = 0, scale = 0;
      for (std::size_t i = 0; i < gradient.values.size(); ++i) {
        slope += gradient.values[i] * normal(99, 1, i);
        scale += std::abs(gradient.values[i] * normal(99, 1, i));
      }
      const double e = 1e-3;
      const auto loss = [&](double much) { return step_with(gradient.name, much).losses.front(); };
      const double measured = (8 * (loss(e) - loss(-e)) - (loss(2 * e) - loss(-2 * e))) / (12 * e);
      INFO(gradient.name << (llama ? ", llama" : ", gpt"));
      CHECK(std::abs(measured - slope) <= 1e-6 * scale + 1e-12);
    }
  }
}

TEST_CASE("layers of two kinds are counted one by one", "[layer_kinds]") {
  const Transformer model = mixed({}, "plain", true).model;
  Transformer all = model;
  all.layers.clear();
  std::int64_t mlp = model.hidden_size;  // its norm
  for (const Parameter& parameter : parameters(all))
    if (parameter.layer == 1 && parameter.name.starts_with("fc")) mlp += parameter.elements();
  CHECK(parameter_count(all) - parameter_count(model) == 2 * mlp);
  const double products = 2 * 2 * double(model.seq_length) * double(mlp - model.hidden_size);  // of two layers
  CHECK(training_flops_per_sequence(all).model - training_flops_per_sequence(model).model == Approx(3 * products));
  const Recompute recompute{Granularity::full, Recompute::Method::uniform, 1, true};
  CHECK(recompute_flops_per_sequence(all, recompute, AttentionBackend::fused, 1) -
            recompute_flops_per_sequence(model, recompute, AttentionBackend::fused, 1) ==
        Approx(products));
  Scenario scenario = mixed({}, "plain", true);
  const double fewer = step_size_of(scenario).operations;
  scenario.model.layers.clear();
  CHECK(step_size_of(scenario).operations > fewer);
  const Schedule schedule = build_schedule(mixed({}, "plain", true));
  CHECK(std::count_if(schedule.blocks.begin(), schedule.blocks.end(),
                      [](const Block& block) { return block.name.starts_with("layer."); }) == 4);
}

}  // namespace stretto::testing
