#include "model/lower/sections.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace stretto {

std::vector<Section> sections_of(const LayerSpec& layer) {
  std::vector<Section> sections = {{"proj", &Sections::attention_forward, &Sections::attention_backward}};
  if (layer.mlp == MlpKind::dense) sections.push_back({"fc2", &Sections::mlp_forward, &Sections::mlp_backward});
  if (layer.has_experts()) sections.push_back({"experts.fc2", &Sections::experts_forward, &Sections::experts_backward});
  return sections;
}

Sections::Sections(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, const DelayedScaling* delayed,
                   PlacedValues& values)
    : schedule_(schedule),
      w_(writer),
      shape_(shape),
      model_(shape.model),
      ffn_(model_.ffn_hidden_size / shape.tp.size),
      heads_(model_.num_attention_heads / shape.tp.size),
      kv_heads_(model_.kv_heads() / shape.tp.size),
      attended_(model_.attention_size() / shape.tp.size),
      qkv_size_(model_.qkv_size() / shape.tp.size),
      fc1_size_(model_.fc1_size() / shape.tp.size),
      act_(model_.swiglu ? "swiglu" : "gelu") {
  add_layer_activations();
  add_transients();
  if (!shape.residual_fusion) values.set_workspace(forward_.branch);
  if (shape.sequence_parallel) values.set_workspace(forward_.branch_part);
  for (const TensorId workspace : {backward_.d_hidden, backward_.d_part}) values.set_workspace(workspace);
  if (w_.drops()) values.set_workspace(backward_.d_branch.tensor);
  values.set_given(Given::stream_gradient, backward_.d_x);
  if (model_.latent.any()) latent_.emplace(writer, shape);
  const auto has_experts = [](const LayerSpec& layer) { return layer.has_experts(); };
  const std::vector<LayerSpec> kinds = model_.layer_kinds();
  if (std::any_of(kinds.begin(), kinds.end(), has_experts))
    experts_.emplace(schedule, writer, shape, layers_with(has_experts));
  if (shape.low.is_on()) add_linears(delayed);
}

void Sections::add_linears(const DelayedScaling* delayed) {
  linears_.emplace(schedule_, w_, shape_, delayed);
  std::vector<QuantisedLinears::Linear> linears;
  for (const LinearLayer& layer : linear_layers(model_, shape_.linear_cuts()))
    linears.push_back(
        {layer, computes_input_again(layer.layer), layer.is_grouped() ? experts_->grouped_rows() : GroupedRows{}});
  linears_->add(linears);
}

// Returns whether a backward pass computes the layer's input again.
bool Sections::computes_input_again(QuantisedLayer layer) const {
  using Module = Recompute::Module;
  switch (layer) {
    case QuantisedLayer::fc1:
    case QuantisedLayer::fc2:
      return repeats(Module::mlp);
    case QuantisedLayer::q:
    case QuantisedLayer::q_up:
    case QuantisedLayer::kv_up:
      return repeats(Module::mla_up_proj);
    case QuantisedLayer::shared_fc1:
    case QuantisedLayer::shared_fc2:
      return repeats(Module::shared_experts) || repeats(Module::moe);
    case QuantisedLayer::experts_fc1:
      return repeats(Module::moe);
    case QuantisedLayer::experts_fc2:
      return repeats(Module::moe_act) || repeats(Module::moe);
    case QuantisedLayer::qkv:
    case QuantisedLayer::proj:
    case QuantisedLayer::q_down:
    case QuantisedLayer::kv_down:
      return false;
  }
  return false;
}

bool Sections::has_dense_mlps() const {
  const std::vector<LayerSpec> kinds = model_.layer_kinds();
  return std::any_of(kinds.begin(), kinds.end(), [](const LayerSpec& layer) { return layer.mlp == MlpKind::dense; });
}

// [layer]; empty: all layers.
std::vector<bool> Sections::layers_with(bool (*has)(const LayerSpec&)) const {
  std::vector<bool> with;
  for (std::int64_t layer = 0; layer < model_.num_layers; ++layer) with.push_back(has(model_.layer(layer)));
  return std::count(with.begin(), with.end(), true) == std::ssize(with) ? std::vector<bool>{} : with;
}

// Returns the module that the norm before a layer's MLP is a part of. In a layer of experts it stands alone; otherwise
// TransformerEngine has it in one function with fc1 (core/models/gpt/gpt_layer_specs.py of Megatron-LM, where dense
// layers of a model with experts have an IdentityOp for it).
static Recompute::Module module_of_ln_2(const LayerSpec& spec) {
  return spec.has_experts() ? Recompute::Module::layernorm : Recompute::Module::mlp;
}

void Sections::add_layer_activations() {
  const std::int64_t rows = w_.residual_rows(), tokens = w_.tokens(), hidden = model_.hidden_size,
                     layers = model_.num_layers;
  using Module = Recompute::Module;
  const bool ln_1_again = selects_ops() || (repeats(Module::layernorm) && model_.latent.any());
  std::vector<bool> ln_2_again;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    ln_2_again.push_back(selects_ops() || repeats(module_of_ln_2(model_.layer(layer))));
  kept_.x = w_.recomputable("x", rows, hidden, layers + 1, {.is_input = true, .role = TensorRole::layer_input});
  // Codes are kept in place of what they were made of.
  const std::vector<bool> passing = shape_.low.is_on() ? shape_.in_codes : std::vector<bool>{};
  // Queries without a latent vector are computed again from it.
  const bool reads_ln_1 = model_.latent.any() && model_.latent.q_lora_rank == 0 && repeats(Module::mla_up_proj);
  kept_.ln_1 = w_.recomputable("ln_1.out", rows, hidden, layers,
                               {.is_again = ln_1_again,
                                .passing = reads_ln_1 ? std::vector<bool>{} : passing,
                                .role = TensorRole::attention_norm_out});
  kept_.ln_1_stats =
      w_.recomputable("ln_1.stats", rows, w_.norm_stats(), layers, {.is_again = ln_1_again, .is_statistics = true});
  if (shape_.cp.size > 1) {
    kept_.qkv = w_.recomputable("qkv.out", tokens, qkv_size_, layers,
                                {.passing = ContextAttention::layers_passing_qkv(shape_), .role = TensorRole::qkv});
    ContextAttention::Shared shared{.qkv = kept_.qkv};
    for (std::size_t kind = 0; kind < shape_.cp.kinds.size(); ++kind)
      context_.emplace_back(schedule_, w_, shape_, kind, shared);
  } else {
    kept_.qkv = w_.recomputable("qkv.out", tokens, qkv_size_, layers,
                                {.is_again = repeats(Module::mla_up_proj), .role = TensorRole::qkv});
    if (shape_.attention_backend == AttentionBackend::unfused)
      unfused_.emplace(w_, shape_);
    else
      kept_.lse = w_.recomputable("attention.lse", shape_.micro_batch_size * heads_, model_.seq_length, layers,
                                  {.is_again = repeats(Module::core_attn), .is_statistics = true});
  }
  if (model_.has_head_norms()) {
    const BlockWriter::Role statistics{.is_statistics = true};
    kept_.projected = w_.recomputable("qkv.projected", tokens, qkv_size_, layers, {});
    kept_.q_norm_stats = w_.recomputable("q_norm.stats", tokens, heads_ * w_.norm_stats(), layers, statistics);
    kept_.k_norm_stats = w_.recomputable("k_norm.stats", tokens, kv_heads_ * w_.norm_stats(), layers, statistics);
  }
  // `selective` keeps the output, which proj's weight gradient reads: 34 s b h bytes a layer (arXiv 2205.05198, eq. 6).
  kept_.attention = w_.recomputable("attention.out", tokens, attended_, layers, {.role = TensorRole::attention_out});
  std::vector<bool> with = layers_with([](const LayerSpec& layer) { return layer.has_mlp(); });
  const auto of_mlp = [&](const std::string& name, std::int64_t of_rows, std::int64_t cols, BlockWriter::Role role) {
    role.layers = with;
    return w_.recomputable(name, of_rows, cols, layers, std::move(role));
  };
  // Where W units compute weight gradients, the storage of x_mid also holds the gradient of proj's output, which all
  // layers have.
  const BlockWriter::Role x_mid{.is_again = makes_x_mid_again(), .role = TensorRole::x_mid};
  kept_.x_mid = shape_.weights_in_units ? w_.recomputable("x_mid", rows, hidden, layers, x_mid)
                                        : of_mlp("x_mid", rows, hidden, x_mid);
  // The router's products are of numbers.
  std::vector<bool> ln_2_passing = passing;
  for (std::size_t layer = 0; layer < ln_2_passing.size(); ++layer)
    ln_2_passing[layer] = ln_2_passing[layer] && !model_.layer(static_cast<std::int64_t>(layer)).has_experts();
  kept_.ln_2 = of_mlp("ln_2.out", rows, hidden,
                      {.again = ln_2_again, .passing = ln_2_passing, .role = TensorRole::mlp_norm_out});
  kept_.ln_2_stats = of_mlp("ln_2.stats", rows, w_.norm_stats(), {.is_statistics = true, .again = ln_2_again});
  if (!has_dense_mlps()) return;
  with = layers_with([](const LayerSpec& layer) { return layer.mlp == MlpKind::dense; });
  if (has_gate_apart()) {
    kept_.gate = of_mlp("gate.out", tokens, ffn_, {.role = TensorRole::gate_out});
    kept_.up = of_mlp("up.out", tokens, ffn_, {.is_again = true});
  } else {
    kept_.fc1 = of_mlp("fc1.out", tokens, fc1_size_, {.is_again = repeats(Module::mlp), .role = TensorRole::fc1_out});
  }
  kept_.act = of_mlp(act_ + ".out", tokens, ffn_,
                     {.is_again = repeats(Module::mlp) || (selects_ops() && !shape_.gelu_fusion),
                      .passing = passing,
                      .role = model_.swiglu ? TensorRole::swiglu_out : TensorRole::gelu_out});
}

void Sections::add_transients() {
  const std::int64_t rows = w_.residual_rows(), tokens = w_.tokens(), hidden = model_.hidden_size;
  if (!shape_.residual_fusion) forward_.branch = w_.workspace("branch.out", tokens, hidden);
  dx_ = w_.workspace("dx", rows, hidden, shape_.gradient_buffers);
  backward_.d_x = whole(schedule_, dx_, 0, Coord::buffer);
  backward_.d_hidden = w_.workspace("d_hidden", tokens, hidden);
  schedule_.tensors[backward_.d_hidden].role = TensorRole::d_hidden;
  backward_.d_attention = w_.workspace("d_attention", tokens, attended_);
  add_output_gradients();
  backward_.d_attended =
      model_.has_head_norms() ? w_.work(w_.workspace("d_qkv.normalised", tokens, qkv_size_)) : backward_.d_qkv;
  if (has_dense_mlps())
    backward_.d_act = shape_.gelu_fusion ? backward_.d_fc1 : w_.work(w_.workspace("d_" + act_, tokens, ffn_));
  forward_.branch_part = shape_.sequence_parallel ? w_.workspace("branch.part", rows, hidden) : forward_.branch;
  backward_.d_part = shape_.sequence_parallel ? w_.workspace("d_hidden.part", rows, hidden) : backward_.d_hidden;
  if (!w_.drops()) return;
  backward_.d_branch = w_.work(w_.workspace("d_branch", rows, hidden));
  if (!shape_.weights_apart) backward_.d_proj = backward_.d_fc2 = backward_.d_branch;
}

// Adds the output gradients that weight gradients read besides activations.
void Sections::add_output_gradients() {
  BackwardTransients& d = backward_;
  if (!shape_.weights_in_units) {
    d.d_qkv = w_.work(w_.workspace("d_qkv", w_.tokens(), qkv_size_));
    if (has_dense_mlps()) d.d_fc1 = w_.work(w_.workspace("d_fc1", w_.tokens(), fc1_size_));
    if (!shape_.weights_apart) return;
    // The next layer's backward pass begins before this layer's weight gradients.
    const std::int64_t rows = w_.residual_rows(), hidden = model_.hidden_size;
    if (!w_.drops() && shape_.low.is_on() && !shape_.has_numbers()) return;
    d.d_proj = w_.work(w_.workspace("d_proj", rows, hidden));
    if (has_dense_mlps() || w_.drops() || reads_stream_late())
      d.d_fc2 = whole(schedule_, w_.workspace("d_fc2", rows, hidden, 2), 0, mod(Expr(Coord::layer), 2));
    return;
  }
  const auto kept = [&](const std::string& name, TensorId activation) {
    return of_layer(w_.kept_gradient(name, activation));
  };
  d.d_qkv = kept("d_qkv", model_.has_head_norms() ? kept_.projected : kept_.qkv);
  if (has_dense_mlps())
    d.d_fc1 = of_layer(w_.kept_gradient(
        "d_fc1", kept_.fc1, layers_with([](const LayerSpec& layer) { return layer.mlp == MlpKind::dense; })));
  d.d_proj = kept("d_proj", kept_.x_mid);
  d.d_fc2 = kept("d_fc2", kept_.x);
}

// Returns the gradient of the term that a layer added to the residual stream. d_x itself will be changed, so a deferred
// weight gradient reads a copy; or codes, but where experts of some layers have none, all read the copy, because their
// operations are the same ones.
View Sections::branch_gradient(const std::string& residual, const std::string& layer, const View& branch,
                               DropoutSite site) {
  const View& d_x = backward_.d_x;
  const bool is_mixed = kind_.spec.has_experts() && residual == "residual_2" &&
                        std::count(shape_.in_codes.begin(), shape_.in_codes.end(), false) > 0;
  if (w_.drops() || !shape_.weights_apart || (kind_.in_codes && !is_mixed))
    return w_.dropped(residual + ".dgrad", d_x, branch, site);
  w_.op(layer + ".keep_dy", Phase::dgrad, Cast{d_x.rows * d_x.cols}, {read(d_x), write(branch)});
  return branch;
}

// ---- attention ----

// after = before + W · input
void Sections::row_layer(const std::string& name, std::int64_t in, const View& input, const std::string& addition,
                         const View& before, const View& after, DropoutSite site) {
  const std::int64_t hidden = model_.hidden_size;
  // Layers of other kinds may have an equal operation with another output.
  const std::string kind = kind_.spec.suffix();
  if (shape_.residual_fusion) return w_.row_forward(name, in, hidden, input, after, before, kind);
  w_.residual(addition + kind, name, before, row_sum(name, in, input), after, site);
}

View Sections::row_sum(const std::string& name, std::int64_t in, const View& input) {
  w_.row_forward(name, in, model_.hidden_size, input, w_.work(forward_.branch));
  return w_.summed(w_.label(name), Phase::forward, w_.work(forward_.branch), w_.work(forward_.branch_part));
}

void Sections::attention_core(const std::string& suffix) {
  if (!context_.empty()) return context_[kind_.context].forward(of_layer(kept_.attention), suffix);
  if (unfused_) return unfused_->forward(qkv(), of_layer(kept_.attention), suffix);
  w_.attention("attention.fprop" + suffix, Pass::forward,
               {read(qkv()), write(of_layer(kept_.attention)), write(of_layer(kept_.lse))});
}

Sections::Columns Sections::columns_of(const View& qkv) const {
  const auto columns = [&](std::int64_t first, std::int64_t count) {
    View part = qkv;
    part.offset = part.offset + Expr(first);
    part.cols = count;
    return part;
  };
  const std::int64_t kv = kv_heads_ * model_.head_dim();
  return {columns(0, attended_), columns(attended_, kv), columns(attended_ + kv, kv)};
}

// Norms of q and k come after the product and before rotary positions (Megatron-LM, Qwen3 in Hugging Face).
void Sections::normalise_heads() {
  if (!model_.has_head_norms()) return;
  const Columns before = columns_of(of_layer(kept_.projected)), after = columns_of(qkv());
  w_.norm_forward("q_norm", before.q, after.q, of_layer(kept_.q_norm_stats), Coord::layer, heads_);
  w_.norm_forward("k_norm", before.k, after.k, of_layer(kept_.k_norm_stats), Coord::layer, kv_heads_);
  w_.op("v.fprop", Phase::forward, Cast{before.v.rows * before.v.cols}, {read(before.v), write(after.v)});
}

void Sections::normalise_heads_backward() {
  if (!model_.has_head_norms()) return;
  const Columns x = columns_of(of_layer(kept_.projected)), dy = columns_of(backward_.d_attended),
                dx = columns_of(backward_.d_qkv);
  w_.norm_backward("q_norm", dy.q, x.q, of_layer(kept_.q_norm_stats), write(dx.q), Coord::layer, heads_);
  w_.norm_backward("k_norm", dy.k, x.k, of_layer(kept_.k_norm_stats), write(dx.k), Coord::layer, kv_heads_);
  w_.op("v.dgrad", Phase::dgrad, Cast{dy.v.rows * dy.v.cols}, {read(dy.v), write(dx.v)});
}

void Sections::attention_norm(const View& in) {
  w_.set_module(Module::attention_norm);
  w_.norm_forward("ln_1", in, of_layer(kept_.ln_1), of_layer(kept_.ln_1_stats), Coord::layer);
}

void Sections::attention_forward(const View& in, const View& out) {
  attention_norm(in);
  w_.set_module(Module::attention);
  if (kind_.spec.attention == AttentionKind::latent) {
    latent_->forward(of_layer(kept_.ln_1), qkv());
  } else {
    w_.column_forward("qkv", model_.hidden_size, qkv_size_, of_layer(kept_.ln_1),
                      model_.has_head_norms() ? of_layer(kept_.projected) : qkv());
    normalise_heads();
    w_.rope("rope.fprop", Phase::forward, Pass::forward, qkv());
  }
  attention_core("");
  row_layer("proj", attended_, of_layer(kept_.attention), "residual_1.fprop", in, out, DropoutSite::residual_1);
}

void Sections::attention_backward(const View& in) {
  const BackwardTransients& d = backward_;
  const bool is_latent = kind_.spec.attention == AttentionKind::latent;
  if (repeats(Recompute::Module::layernorm) && is_latent) w_.again(Recomputed::layernorm, [&] { attention_norm(in); });
  w_.set_module(Module::attention);
  if (repeats(Recompute::Module::mla_up_proj) && is_latent)
    w_.again(Recomputed::mla_up_proj, [&] { latent_->up_forward(of_layer(kept_.ln_1), qkv()); });
  if (repeats(Recompute::Module::core_attn))
    w_.again(
        Recomputed::core_attn, [&] { attention_core(".recompute"); }, "");
  w_.row_backward("proj", attended_, model_.hidden_size,
                  branch_gradient("residual_1", "proj", d.d_proj, DropoutSite::residual_1), of_layer(kept_.attention),
                  w_.work(d.d_attention));
  if (!context_.empty())
    context_[kind_.context].backward(of_layer(kept_.attention), w_.work(d.d_attention), d.d_attended);
  else if (unfused_)
    unfused_->backward(qkv(), w_.work(d.d_attention), d.d_attended);
  else
    w_.attention("attention.dgrad", Pass::dgrad,
                 {read(qkv()), read(of_layer(kept_.attention)), read(of_layer(kept_.lse)), read(w_.work(d.d_attention)),
                  write(d.d_attended)});
  const View d_ln_1 = project_backward();
  w_.set_module(Module::attention_norm);
  w_.norm_backward("ln_1", d_ln_1, in, of_layer(kept_.ln_1_stats), accumulate(d.d_x), Coord::layer);
}

// Returns the gradient of the first norm's output.
View Sections::project_backward() {
  const BackwardTransients& d = backward_;
  const View x = of_layer(kept_.ln_1), all = w_.work(d.d_hidden), part = w_.work(d.d_part);
  if (kind_.spec.attention == AttentionKind::latent) return latent_->backward(d.d_qkv, x, all, part);
  w_.rope("rope.dgrad", Phase::dgrad, Pass::dgrad, d.d_attended);
  normalise_heads_backward();
  return w_.column_backward("qkv", model_.hidden_size, qkv_size_, d.d_qkv, x, all, part);
}

// ---- mlp ----

// Returns the inputs of the activation: the output of fc1, or its gate and up under swiglu.
std::vector<Access> Sections::before_activation() const {
  if (has_gate_apart()) return {read(of_layer(kept_.gate)), read(of_layer(kept_.up))};
  View fc1 = of_layer(kept_.fc1);
  if (!model_.swiglu) return {read(fc1)};
  View gate = fc1, up = fc1;
  gate.cols = up.cols = ffn_;
  up.offset = up.offset + Expr(ffn_);
  return {read(gate), read(up)};
}

void Sections::activation() {
  std::vector<Access> accesses = before_activation();
  accesses.push_back(write(of_layer(kept_.act)));
  w_.op(act_ + ".fprop", Phase::forward,
        Elementwise{model_.swiglu ? ElementwiseFn::swiglu : ElementwiseFn::gelu, w_.tokens(), ffn_},
        std::move(accesses));
}

void Sections::up_forward(const View& x) {
  w_.column_part_forward("fc1.up", "fc1", ffn_, model_.hidden_size, ffn_, x, of_layer(kept_.up));
}

void Sections::mlp_norm(const View& in) {
  w_.set_module(Module::mlp_norm);
  w_.norm_forward("ln_2", in, of_layer(kept_.ln_2), of_layer(kept_.ln_2_stats), Coord::layer);
}

void Sections::mlp_forward(const View& in, const View& out) {
  mlp_norm(in);
  w_.set_module(Module::mlp);
  mlp_inner();
  row_layer("fc2", ffn_, of_layer(kept_.act), "residual_2.fprop", in, out, DropoutSite::residual_2);
}

void Sections::mlp_inner() {
  if (has_gate_apart()) {
    const View x = w_.gathered("fc1.all_gather", Phase::forward, of_layer(kept_.ln_2));
    w_.column_part_forward("fc1.gate", "fc1", 0, model_.hidden_size, ffn_, x, of_layer(kept_.gate));
    up_forward(x);
  } else {
    w_.column_forward("fc1", model_.hidden_size, fc1_size_, of_layer(kept_.ln_2), of_layer(kept_.fc1),
                      shape_.gelu_fusion ? std::optional(of_layer(kept_.act)) : std::nullopt);
  }
  if (!shape_.gelu_fusion) activation();
}

void Sections::mlp_backward(const View& in) {
  const BackwardTransients& d = backward_;
  const bool is_again = repeats(module_of_ln_2(kind_.spec));
  if (is_again) w_.again(Recomputed::layernorm, [&] { mlp_norm(in); });
  w_.set_module(Module::mlp);
  if (is_again)
    w_.again(Recomputed::mlp, [&] {
      mlp_inner();
      if (shape_.recompute.whole_layers && !shape_.residual_fusion)
        row_sum("fc2", ffn_, of_layer(kept_.act));
      else if (kind_.in_codes)
        linears_->quantise_input("fc2", of_layer(kept_.act));
    });
  w_.row_backward("fc2", ffn_, model_.hidden_size,
                  branch_gradient("residual_2", "fc2", d.d_fc2, DropoutSite::residual_2), of_layer(kept_.act), d.d_act,
                  shape_.gelu_fusion ? std::optional(of_layer(kept_.fc1)) : std::nullopt,
                  shape_.gelu_bias_gradient_fusion ? "fc1.bias" : "");
  if (!shape_.gelu_fusion) {
    std::vector<Access> accesses = before_activation();
    accesses.insert(accesses.begin(), read(d.d_act));
    accesses.push_back(write(d.d_fc1));
    w_.op(act_ + ".dgrad", Phase::dgrad,
          Elementwise{model_.swiglu ? ElementwiseFn::swiglu_backward : ElementwiseFn::gelu_backward, w_.tokens(), ffn_},
          std::move(accesses));
  }
  const View d_ln_2 = w_.column_backward("fc1", model_.hidden_size, fc1_size_, d.d_fc1, of_layer(kept_.ln_2),
                                         w_.work(d.d_hidden), w_.work(d.d_part), !shape_.gelu_bias_gradient_fusion);
  w_.set_module(Module::mlp_norm);
  w_.norm_backward("ln_2", d_ln_2, in, of_layer(kept_.ln_2_stats), accumulate(d.d_x), Coord::layer);
}

// ---- experts ----

void Sections::experts_forward(const View& in, const View& out) {
  mlp_norm(in);
  const View sum = experts_->forward(of_layer(kept_.ln_2));
  w_.set_module(Module::mlp);
  w_.residual(std::string("residual_2.fprop") + kind_.spec.suffix(), "fc2", in, sum, out, DropoutSite::residual_2);
}

void Sections::experts_backward(const View& in) {
  const BackwardTransients& d = backward_;
  if (repeats(module_of_ln_2(kind_.spec))) w_.again(Recomputed::layernorm, [&] { mlp_norm(in); });
  w_.set_module(Module::mlp);
  // Only a shared expert's weight gradient reads it later, and with a gate that reads the gate's.
  const bool is_read_later = w_.drops() || reads_stream_late();
  const View dy = is_read_later ? branch_gradient("residual_2", "fc2", d.d_fc2, DropoutSite::residual_2) : d.d_x;
  const View d_ln_2 = experts_->backward(dy, of_layer(kept_.ln_2), w_.work(d.d_hidden), w_.work(d.d_part));
  w_.set_module(Module::mlp_norm);
  w_.norm_backward("ln_2", d_ln_2, in, of_layer(kept_.ln_2_stats), accumulate(d.d_x), Coord::layer);
}

// ---- recomputation of selective_op ----

// Every second product is kept: q, v and gate. The model's products k, proj and up would not be kept, but k is, because
// it lies next to q and v. With tensor parallelism the sum after proj is kept, so that proj is not recomputed.
void Sections::light_forward(const View& in) {
  const View x_mid = of_layer(kept_.x_mid), ln_2 = of_layer(kept_.ln_2);
  attention_norm(in);
  if (!kind_.spec.has_mlp()) return;
  w_.set_module(Module::attention);
  if (makes_x_mid_again())
    row_layer("proj", attended_, of_layer(kept_.attention), "residual_1.fprop", in, x_mid, DropoutSite::residual_1);
  mlp_norm(x_mid);
  w_.set_module(Module::mlp);
  if (has_gate_apart()) up_forward(w_.gathered("fc1.all_gather", Phase::forward, ln_2));
  if (!shape_.gelu_fusion) activation();
}

}  // namespace stretto
