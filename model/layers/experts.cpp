#include "model/layers/layers.hpp"

namespace stretto::layers {
namespace {

// Nodes that have equal or like operands for rows and for what each row has of its own.
enum Bundle : std::uint8_t { none, of_router, of_copies };

// The expert that all tokens go through; its gate is a number between 0 and 1 for each token (Qwen2-MoE).
Slice shared_expert(Builder& g, const Slice& h) {
  const Transformer& m = g.model();
  g.set_module(Module::shared_experts);
  const Slice x = g.fork("shared.add", h, "d_shared.in");
  g.set_function(Recomputed::shared_experts);
  g.set_branch(1);
  g.set_concurrent_half(1);
  const std::int64_t width = m.experts.moe_shared_expert_intermediate_size;
  const Slice y =
      g.activation({"shared.fc1.out", "d_shared.fc1", TensorRole::shared_fc1_out}, g.parts_of_fc1(width), Dim::ffn);
  g.linear("shared.fc1", x, y, false);
  const Slice a = g.activation({"shared.act", "d_shared.act", TensorRole::shared_act}, width, Dim::ffn);
  g.activation(y, a, "shared.act");
  g.set_concurrent_half(2);
  Slice out = g.activation({"shared.out", "d_shared.out"}, m.hidden_size);
  g.of(out).terms = "shared.sum";
  g.linear("shared.fc2", a, out, false);
  if (m.experts.moe_shared_expert_gate) {
    g.set_branch(2);
    const Slice gate = g.activation({"shared.gate.out", "d_shared.gate"}, 1);
    g.linear("shared.gate", x, gate, false).is_deferrable = false;
    g.set_branch(0);
    const Slice gated = g.activation({"shared.gated", ""}, m.hidden_size);
    g.add("shared.gated", "fprop", GateRows{}, {reads(out), reads(gate), writes(gated)});
    out = gated;
  }
  g.set_branch(0);
  g.set_concurrent_half(0);
  g.set_function(Recomputed::none);
  return out;
}

struct Routed {
  Slice indices, probabilities;
};

Slice of_tokens(Builder& g, const Builder::Named& named, std::int64_t cols, ValueKind kind) {
  const Slice made = g.activation(named, cols);
  g.of(made).kind = kind;
  return made;
}

// Which experts each token goes through, and the losses of the router.
Routed route(Builder& g, const Slice& h) {
  const Transformer& m = g.model();
  const Experts& experts = m.experts;
  const std::int64_t count = experts.num_moe_experts, topk = experts.moe_router_topk;
  g.set_module(Module::router);
  const Slice logits = of_tokens(g, {"router.out", "d_router"}, count, ValueKind::statistics);
  g.linear("router", h, logits, false).is_deferrable = false;
  const Routed routed = {
      of_tokens(g, {"router.indices", ""}, topk, ValueKind::integers),
      of_tokens(g, {"router.probabilities", "d_router.all_probabilities"}, topk, ValueKind::statistics)};
  std::vector<Operand> operands = {reads(logits)};
  Slice bias;
  if (experts.moe_router_enable_expert_bias) {
    bias = g.vector("router.bias", {Dim::none, count});
    g.of(bias).parameter = ParameterKind::buffer;
    operands.push_back(reads(bias));
  }
  operands.insert(operands.end(), {writes(routed.indices), writes(routed.probabilities)});
  g.set_bundle(of_router);
  g.add("router", "route.fprop",
        Route{.experts = count,
              .topk = topk,
              .score = experts.moe_router_score_function,
              .pre_softmax = experts.moe_router_pre_softmax,
              .scaling = experts.moe_router_topk_scaling_factor,
              .groups = experts.moe_router_num_groups,
              .group_topk = experts.moe_router_group_topk,
              .biased = experts.moe_router_enable_expert_bias},
        std::move(operands));
  if (experts.has_balance_loss()) {
    const bool by_sequence = experts.moe_router_load_balancing_type == LoadBalancing::seq_aux_loss;
    const std::int64_t sequences = by_sequence ? g.data().micro_batch_size : 1;
    const Slice counts = g.add({.name = "router.counts",
                                .gradient = {},
                                .rows = {Dim::none, sequences},
                                .cols = {Dim::none, count},
                                .kind = ValueKind::statistics});
    BalanceLoss loss{.experts = count, .topk = topk, .score = experts.moe_router_score_function};
    loss.sequences = sequences;
    loss.seq = m.seq_length;
    g.add("router", "count.fprop", loss, {reads(logits), writes(counts)});
  }
  if (experts.moe_router_enable_expert_bias) {  // the backward pass counts, which nobody repeats
    Node& count_loads = g.add("router", "count_loads", CountLoads{.topk = topk, .experts = count}, {});
    count_loads.from = routed.indices;
    count_loads.to = bias;
  }
  g.set_bundle(none);
  return routed;
}

}  // namespace

void experts(Builder& g, const Slice& x, const Slice& out) {
  const Transformer& m = g.model();
  const Experts& experts = m.experts;
  const std::int64_t count = experts.num_moe_experts, topk = experts.moe_router_topk, hidden = m.hidden_size,
                     width = m.expert_size(), fc1 = m.rows_of_fc1(width);
  // Here the norm is a function of its own (core/models/gpt/gpt_layer_specs.py of Megatron-LM); a dense layer has it in
  // one with the product.
  g.set_module(Module::mlp_norm);
  g.set_function(Recomputed::layernorm);
  const Slice h = g.normed_input("ln_2", TensorRole::mlp_norm_out, x);
  g.set_function(Recomputed::none);
  Slice shared;
  if (experts.has_shared()) shared = shared_expert(g, h);
  const Routed routed = route(g, h);

  // Copies of tokens, sorted by expert.
  g.set_module(Module::token_sort);
  const auto rows_of = [&](const Builder::Named& named, std::int64_t cols, Dim dim = Dim::none,
                           ValueKind kind = ValueKind::activation) {
    return g.add({.name = named.name,
                  .gradient = named.gradient,
                  .rows = {Dim::expert_rows, g.tokens() * topk},
                  .cols = {dim, cols},
                  .kind = kind,
                  .role = named.role});
  };
  const Slice positions = of_tokens(g, {"experts.positions", ""}, topk, ValueKind::integers);
  const Slice offsets = g.add({.name = "experts.offsets",
                               .gradient = {},
                               .rows = {},
                               .cols = {Dim::none, count + 1},
                               .kind = ValueKind::integers});
  g.add("experts", "sort.fprop", SortTokens{.topk = topk, .experts = count},
        {reads(routed.indices), writes(offsets), writes(positions)});
  const Slice rows = rows_of({"experts.in", "d_experts.in", TensorRole::experts_in}, hidden);
  const Slice weights = rows_of({"experts.weights", "d_experts.weights"}, 1, Dim::none, ValueKind::statistics);
  g.set_bundle(of_copies);
  g.add("experts", "permute.fprop", Permute{.copies = topk}, {reads(positions), reads(h), writes(rows)});
  g.add("experts", "permute_weights.fprop", Permute{.copies = topk, .apart = true},
        {reads(positions), reads(routed.probabilities), writes(weights)});
  g.set_bundle(none);

  g.set_module(Module::experts);
  const auto product = [&](const char* name, const Slice& a, const Slice& c) {
    const Slice w = g.parameter(std::string(name) + ".weight", {Dim::experts, count * c.cols}, {Dim::none, a.cols});
    g.add(name, "fprop", GroupedGemm{}, {reads(a), reads(w), reads(offsets), writes(c)}).is_deferrable = true;
  };
  const Slice y = rows_of({"experts.fc1.out", "d_experts.fc1", TensorRole::experts_fc1_out}, fc1, Dim::expert_width);
  g.of(y).segments = g.parts_of_fc1(width);
  product("experts.fc1", rows, y);
  const Slice a = rows_of({"experts.act", "d_experts.act", TensorRole::experts_act}, width, Dim::expert_width);
  g.set_function(Recomputed::moe_act);
  g.add("experts.act", "fprop", WeightedActivation{.gated = m.swiglu}, {reads(y), reads(weights), writes(a)});
  g.set_function(Recomputed::none);
  const Slice z = rows_of({"experts.fc2.out", "d_experts.in"}, hidden);
  product("experts.fc2", a, z);
  const Slice total = g.activation({"experts.sum", m.norms_results() ? "d_experts.sum" : "d_branch"}, hidden);
  g.add("experts", "unpermute.fprop", Permute{.pass = Pass::backward, .copies = topk},
        {reads(positions), reads(z), writes(total)});
  if (experts.has_shared()) {
    g.set_module(Module::shared_experts);
    g.add("shared.add", "fprop", Elementwise{ElementwiseFn::accumulate}, {reads(shared), adds(total)});
  }
  g.set_module(Module::mlp);
  g.residual("residual_2", "fc2", x, g.normed_result("fc2", total, ".experts"), out, DropoutSite::residual_2);
}

}  // namespace stretto::layers
