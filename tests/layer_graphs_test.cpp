// Compares the gradients of the graphs of layers, in f64 on one and on two tensor-parallel ranks, with central
// differences of the forward graph (tests/graph_numbers.hpp).
#include <catch2/catch.hpp>

#include "tests/draw.hpp"
#include "tests/graph_numbers.hpp"

namespace stretto::layer_graphs {
namespace {

using testing::Draw;

Transformer tiny_model() {
  Transformer model;
  model.num_layers = 1;
  model.hidden_size = 8;
  model.num_attention_heads = 4;
  model.num_query_groups = 2;
  model.kv_channels = 2;
  model.ffn_hidden_size = 6;
  model.seq_length = model.max_position_embeddings = 4;
  model.vocab_size = 10;
  model.padded_vocab_size = 12;
  return model;
}

Matrix drawn(Draw& draw, std::int64_t rows, std::int64_t cols) {
  Matrix matrix = zeros(rows, cols);
  for (double& element : matrix.of) element = double(draw.between(-1000, 1000)) / 1000;
  return matrix;
}

// A layout of one kind, and its name.
struct Variant {
  std::string name;
  void (*set)(Layout& layout);
};
const std::vector<Variant>& variants() {
  using Granularity = Recompute::Granularity;
  static const std::vector<Variant> all = {
      {"plain", [](Layout&) {}},
      {"weights apart", [](Layout& l) { l.weights_apart = l.weights_in_units = true; }},
      {"attention again",
       [](Layout& l) {
         l.recompute = {.granularity = Granularity::selective, .modules = {Recompute::Module::core_attn}};
       }},
      {"mlp again, weights apart",
       [](Layout& l) {
         l.recompute = {.granularity = Granularity::selective, .modules = {Recompute::Module::mlp}};
         l.weights_apart = l.weights_in_units = true;
       }},
      {"latent attention's norms and products again",
       [](Layout& l) {
         l.recompute = {.granularity = Granularity::selective,
                        .modules = {Recompute::Module::layernorm, Recompute::Module::mla_up_proj}};
         l.weights_apart = l.weights_in_units = true;
       }},
      {"operations again", [](Layout& l) { l.recompute.granularity = Granularity::selective_op; }},
      {"unfused", [](Layout& l) { l.is_unfused = true; }},
      {"fused",
       [](Layout& l) {
         const bool has_gelu = !l.model.swiglu, has_bias = l.model.add_bias_linear;
         l.fusions = {has_gelu, has_bias, has_gelu && has_bias, l.model.hidden_dropout == 0 && l.tp == 1, true};
       }},
  };
  return all;
}

// Parts of experts that are repeated.
const std::vector<Variant>& variants_of_experts() {
  using enum Recompute::Module;
  static const auto repeat = [](Layout& l, std::vector<Recompute::Module> modules) {
    l.recompute = {.granularity = Recompute::Granularity::selective, .modules = std::move(modules)};
  };
  static const std::vector<Variant> all = {
      {"plain", [](Layout&) {}},
      {"weights apart", [](Layout& l) { l.weights_apart = l.weights_in_units = true; }},
      {"weights last, experts again",
       [](Layout& l) {
         l.experts.weights_last = true;
         repeat(l, {moe});
       }},
      {"all of the experts again",
       [](Layout& l) {
         repeat(l, {moe});
         l.recompute.whole_layers = true;
       }},
      {"norm, activation and shared expert again",
       [](Layout& l) {
         repeat(l, {layernorm, moe_act, shared_experts});
       }},
      {"shared expert again, and concurrent",
       [](Layout& l) {
         l.experts.shared_is_concurrent = l.experts.exchanges;
         repeat(l, {shared_experts});
       }},
  };
  return all;
}
// How two ranks that cut the tokens between layers share experts or cut them.
const std::vector<Variant>& cuts_of_experts() {
  static const auto share = [](Layout& l) {
    l.experts.ranks = 2;
    l.experts.local /= 2;
    l.experts.first = Expr(Coord::tp) * Expr(l.experts.local);
  };
  static const auto all_tokens = [](Layout& l) { l.experts.gathering = 2; };
  static const std::vector<Variant> all = {
      {"all experts", [](Layout&) {}},
      {"cut experts",
       [](Layout& l) {
         l.experts.width_ranks = 2;
         l.experts.gathers_over_tensor = true;
         all_tokens(l);
       }},
      {"gathered tokens",
       [](Layout& l) {
         share(l);
         all_tokens(l);
       }},
      {"exchanged rows",
       [](Layout& l) {
         share(l);
         l.experts.exchanges = true;
       }},
      {"rows in slots",
       [](Layout& l) {
         share(l);
         l.experts.exchanges = l.experts.in_slots = true;
         l.experts.place = Expr(Coord::tp);
         l.experts.rank_capacity = 4;
       }},
      {"exchanged rows of equal number",
       [](Layout& l) {
         share(l);
         l.experts.exchanges = true;
         l.experts.capacity = double(l.model.experts.num_moe_experts);
       }},
      {"one expert a rank and padding",
       [](Layout& l) {
         share(l);
         all_tokens(l);
         l.experts.capacity = double(l.model.experts.num_moe_experts);
       }},
  };
  return all;
}

void check(const Subject& subject, const Transformer& model, const std::vector<Parameter>& all) {
  host::prepare_blas();
  Layout plain{.model = model};
  plain.data.micro_batch_size = 2;
  plain.tokens = 2 * model.seq_length;
  plain.loss_scale = 0.25;
  plain.experts.local = model.experts.num_moe_experts;
  Draw draw(7);
  Matrix x = drawn(draw, plain.tokens, model.hidden_size);
  const Matrix d_out = drawn(draw, plain.tokens, model.hidden_size);
  LayerGraphs graphs;
  Builder builder(graphs, model, plain.data);
  subject.write(builder);
  std::vector<Parameter> parameters;
  Matrices weights;
  for (const Parameter& parameter : all)
    for (const Value& value : graphs.values)
      if (value.kind == ValueKind::parameter && value.name == parameter.name) {
        parameters.push_back(parameter);
        weights[parameter.name] = drawn(draw, parameter.rows, parameter.cols);
      }
  REQUIRE(!parameters.empty());
  const Result reference = Run(subject, plain, parameters, weights, x, d_out).all();

  // Central differences of a few elements of each array.
  const auto value = [&] {
    const Result result = Run(subject, plain, parameters, weights, x, d_out).forward();
    if (subject.has_loss) return result.loss;
    double sum = 0;
    for (std::size_t i = 0; i < d_out.of.size(); ++i) sum += d_out.of[i] * result.output.of[i];
    return sum;
  };
  const auto differentiate = [&](Matrix& of, const Matrix& gradient, const std::string& name) {
    for (int i = 0; i < 3; ++i) {
      const auto at = static_cast<std::size_t>(draw.between(0, std::ssize(of.of) - 1));
      constexpr double kStep = 1e-5;
      const double before = of.of[at];
      of.of[at] = before + kStep;
      const double above = value();
      of.of[at] = before - kStep;
      const double below = value();
      of.of[at] = before;
      INFO(name << " element " << at);
      CHECK(gradient.of[at] == Approx((above - below) / (2 * kStep)).epsilon(1e-6).margin(1e-8));
    }
  };
  for (const Parameter& p : parameters)
    differentiate(weights[p.name], reference.parameter_gradients[0].at("grad." + p.name), p.name);
  if (!subject.starts_at_tokens) differentiate(x, reference.input_gradient, "x");

  // All other layouts give the same numbers.
  const auto compare = [&](const Layout& layout, const std::string& name) {
    INFO(subject.name << ", tp " << layout.tp << (layout.sequence_parallel ? " with sequence parallelism, " : ", ")
                      << name);
    const Result result = Run(subject, layout, parameters, weights, x, d_out).all();
    constexpr double kRounding = 1e-11;
    if (subject.has_loss)
      CHECK(result.loss * double(layout.tp) == Approx(reference.loss).epsilon(1e-11));
    else
      CHECK(difference(result.output, reference.output) < kRounding);
    if (!subject.starts_at_tokens) CHECK(difference(result.input_gradient, reference.input_gradient) < kRounding);
    for (const Parameter& p : parameters) {
      INFO(p.name);
      const Matrix& whole = reference.parameter_gradients[0].at("grad." + p.name);
      std::vector<Matrix> of_ranks;
      for (const Matrices& rank : result.parameter_gradients) of_ranks.push_back(rank.at("grad." + p.name));
      const bool has_all_experts =
          p.experts > 0 && layout.experts.local == p.experts && layout.experts.width_ranks == 1;
      if ((p.shard == Shard::none && (layout.sequence_parallel || p.is_for_heads)) || has_all_experts) {
        CHECK(difference(sum_of(of_ranks), whole) < kRounding);
        continue;
      }
      for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
        CHECK(difference(of_ranks[rank], cut(p, whole, layout, static_cast<std::int64_t>(rank))) < kRounding);
    }
  };
  for (const std::int64_t tp : {1, 2})
    for (const bool sequence_parallel : {false, true}) {
      if (tp == 1 && sequence_parallel) continue;
      Layout of_ranks = plain;
      of_ranks.tp = tp;
      of_ranks.tp_place = tp > 1 ? Expr(Coord::tp) : Expr(0);
      of_ranks.sequence_parallel = sequence_parallel;
      if (!model.experts.any()) {
        for (const Variant& variant : variants()) {
          Layout layout = of_ranks;
          variant.set(layout);
          // Its values are as wide as its keys, and it has no rules for scores.
          if (layout.is_unfused && (model.latent.any() || model.has_score_rules())) continue;
          compare(layout, variant.name);
        }
        continue;
      }
      if (tp > 1 && !sequence_parallel) continue;  // which experts need
      for (const Variant& shared : cuts_of_experts())
        for (const Variant& variant : variants_of_experts()) {
          Layout layout = of_ranks;
          if (tp > 1) shared.set(layout);
          variant.set(layout);
          if (tp > 1 || &shared == cuts_of_experts().data()) compare(layout, shared.name + ", " + variant.name);
        }
    }
}

void check(const Subject& subject, const Transformer& model) { check(subject, model, parameters(model)); }

const Subject kLayer{"layer", [](Builder& g) { layers::layer(g, {}); }};
const Subject kOfModel{"layer of the model", [](Builder& g) { layers::layer(g, g.model().layer(0)); }};
const Subject kExperts{"experts",
                       [](Builder& g) { layers::layer(g, {.mixer = MixerKind::attention, .mlp = MlpKind::experts}); }};
const Subject kAttentionOnly{"attention", [](Builder& g) {
                               layers::mixer(g, g.model().layer(0), g.stream(Given::input), g.stream(Given::output));
                             }};
const Subject kEmbedding{"embedding", layers::embedding, false, true};
const Subject kHead{"head", [](Builder& g) { layers::head(g, g.model().head_weight()); }, true};

// Stretto does not have this layer: an MLP with an adapter of low rank. Two cut products read one norm, and so does a
// product that every rank has in full.
const Subject kAdapter{
    "adapter", [](Builder& g) {
      const Transformer& m = g.model();
      const Slice x = g.stream(Given::input);
      const Slice h = g.hidden("ln_2", TensorRole::mlp_norm_out);
      g.norm("ln_2", x, h);
      const Slice fc1 = g.activation({"fc1.out", "d_sum"}, m.ffn_hidden_size, Dim::ffn);
      g.linear("fc1", h, fc1, false);
      const Slice low = g.activation({"a.out", "d_a"}, 3);
      g.linear("a", h, low, false);
      const Slice gate = g.activation({"gate.out", "d_gate"}, m.ffn_hidden_size, Dim::ffn);
      g.linear("g", h, gate, false);
      const Slice up = g.activation({"b.out", "d_b"}, m.ffn_hidden_size, Dim::ffn);
      g.linear("b", low, up, false);
      const Slice sum = g.activation({"sum", "d_sum"}, m.ffn_hidden_size, Dim::ffn);
      g.add("sum", "fprop", Elementwise{ElementwiseFn::add}, {reads(fc1), reads(up), writes(sum)});
      const Slice act = g.activation({"act", "d_act"}, m.ffn_hidden_size, Dim::ffn);
      g.add("gelu", "fprop", Elementwise{ElementwiseFn::gelu}, {reads(sum), writes(act)});
      const Slice act_2 = g.activation({"act_2", "d_act_2"}, m.ffn_hidden_size, Dim::ffn);
      g.add("gelu_2", "fprop", Elementwise{ElementwiseFn::gelu}, {reads(gate), writes(act_2)});
      const Slice both = g.activation({"both", "d_act"}, m.ffn_hidden_size, Dim::ffn);
      g.add("both", "fprop", Elementwise{ElementwiseFn::add}, {reads(act), reads(act_2), writes(both)});
      const Slice b = g.branch_result();
      g.linear("fc2", both, b, false);
      g.residual("residual_2", "fc2", x, b, g.stream(Given::output), DropoutSite::residual_2);
    }};

}  // namespace

TEST_CASE("graphs of layers: gradients are those of central differences, in every layout", "[graphs]") {
  Transformer gpt2 = tiny_model(), dropout = tiny_model(), llama = in_llama_style(tiny_model());
  dropout.hidden_dropout = 0.2;
  dropout.attention_dropout = 0.3;
  Transformer normed = llama;
  normed.qk_layernorm = true;
  for (const Transformer& model : {gpt2, dropout, llama, normed})
    for (const Subject& subject : {kLayer, kAttentionOnly, kEmbedding, kHead}) check(subject, model);
  Transformer windows = llama, sinks = llama, posts = llama;
  windows.sliding_window = 2;
  windows.attn_logit_softcapping = 0.5;
  windows.add_qkv_bias = true;
  sinks.softmax_type = SoftmaxType::learnable;
  sinks.attention_chunk_size = 3;
  sinks.no_rope_freq = {1};
  posts.norm_places = NormPlaces::post;
  for (const Transformer& model : {windows, sinks, posts})
    for (const Subject& subject : {kOfModel, kAttentionOnly}) check(subject, model);
  posts.norm_places = NormPlaces::both;
  check(kLayer, posts);
  Transformer latent = llama;
  latent.num_query_groups = 4;
  latent.latent = {.multi_latent_attention = true, .q_lora_rank = 6, .kv_lora_rank = 4};
  latent.latent.qk_head_dim = latent.latent.qk_pos_emb_head_dim = 2;
  latent.latent.v_head_dim = 3;
  for (const std::int64_t q_lora_rank : {6, 0}) {
    latent.latent.q_lora_rank = q_lora_rank;
    check(kAttentionOnly, latent);
  }
}

TEST_CASE("graphs of layers: the gated delta rule, Mamba-2, and MLPs alone", "[graphs]") {
  Transformer model = in_llama_style(tiny_model());
  model.seq_length = 5;
  model.gated_delta = {{2}, 3, 3, 2, 2, 4};
  model.mamba = {"M", 3, 2, 2, 4};
  for (const LayerSpec& spec : {LayerSpec{MixerKind::gated_delta, MlpKind::none},
                                {MixerKind::mamba, MlpKind::none},
                                {MixerKind::gated_delta, MlpKind::dense},
                                {MixerKind::none, MlpKind::dense}}) {
    model.layers = {spec};
    check(kOfModel, model);
  }
}

TEST_CASE("graphs of layers: experts, however ranks share them", "[graphs]") {
  Transformer gated = in_llama_style(tiny_model());
  gated.experts.num_moe_experts = 4;
  gated.experts.moe_ffn_hidden_size = 6;
  gated.experts.moe_shared_expert_intermediate_size = 4;
  gated.experts.moe_shared_expert_gate = true;
  check(kExperts, gated);
  Transformer dropout = tiny_model();
  dropout.add_bias_linear = false;
  dropout.experts = gated.experts;
  dropout.experts.num_moe_experts = 2;  // one of a rank
  dropout.experts.moe_router_score_function = RouterScore::sigmoid;
  dropout.experts.moe_shared_expert_gate = false;
  dropout.hidden_dropout = 0.2;
  check(kExperts, dropout);
  gated.experts.moe_shared_expert_intermediate_size = 0;
  gated.experts.moe_router_pre_softmax = true;
  check(kExperts, gated);
}

TEST_CASE("graphs of layers: products that are cut and products that are whole read one value", "[graphs]") {
  Transformer model = tiny_model();
  model.normalization = Normalization::rms_norm;
  const std::int64_t hidden = model.hidden_size, ffn = model.ffn_hidden_size;
  const auto matrix = [](const char* name, std::int64_t rows, std::int64_t cols, Shard shard) {
    return Parameter{.name = name, .layer = 0, .rows = rows, .cols = cols, .shard = shard};
  };
  check(kAdapter, model,
        {matrix("ln_2.weight", 1, hidden, Shard::none), matrix("a.weight", 3, hidden, Shard::none),
         matrix("b.weight", ffn, 3, Shard::rows), matrix("fc1.weight", ffn, hidden, Shard::rows),
         matrix("g.weight", ffn, hidden, Shard::rows), matrix("fc2.weight", hidden, ffn, Shard::columns)});
}

}  // namespace stretto::layer_graphs
