#include "model/lower/blocks.hpp"

namespace stretto {
namespace {

// Names the pieces that every block needs, so that a block reads like the model's equations.
class BlockWriter {
 public:
  BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters, LaneId lane)
      : schedule_(schedule),
        parameters_(parameters),
        lane_(lane),
        dtype_(schedule.compute_dtype),
        shape_(shape),
        slot_(mod(Expr(Coord::micro_batch), shape.slots)) {}

  void begin(const std::string& name) { block_ = {name, {}}; }
  BlockId end() { return add_block(schedule_, std::move(block_)); }

  void op(const std::string& name, Phase phase, Work work, std::vector<Access> accesses) {
    add_operation(schedule_, block_, {name, std::move(work), lane_, phase, std::move(accesses)});
  }

  // Activation families; `layers` > 1 keeps one instance a layer until its backward.
  TensorId activation(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers) {
    return add_tensor(schedule_, name, dtype_, BufferKind::activation, rows, cols, layers, shape_.slots);
  }
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols) {
    return add_tensor(schedule_, name, dtype_, BufferKind::workspace, rows, cols);
  }

  View act(TensorId tensor, const Expr& layer = 0) const { return whole(schedule_, tensor, layer, slot_); }
  View work(TensorId tensor) const { return whole(schedule_, tensor); }
  View parameter(const std::string& name, const Expr& layer = 0) const {
    return whole(schedule_, parameters_.parameter.at(name), layer);
  }
  View gradient(const std::string& name, const Expr& layer = 0) const {
    return whole(schedule_, parameters_.gradient.at(name), layer);
  }

  // Linear layer `name` with weight [out, in]: y[T,out] = x[T,in] · Wᵀ (+ b).
  void linear_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y) {
    const bool bias = shape_.model.add_bias_linear;
    std::vector<Access> accesses = {read(x), read(parameter(name + ".weight", Coord::layer))};
    if (bias) accesses.push_back(read(parameter(name + ".bias", Coord::layer)));
    accesses.push_back(write(y));
    op(name + ".fprop", Phase::forward, Gemm{shape_.tokens(), out, in, false, true, bias}, std::move(accesses));
  }
  // dx[T,in] = dy[T,out] · W;  dW[out,in] += dyᵀ · x;  (db[out] += Σ_T dy).
  void linear_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy, View x, View dx) {
    const std::int64_t tokens = shape_.tokens();
    op(name + ".dgrad", Phase::dgrad, Gemm{tokens, in, out, false, false, false},
       {read(dy), read(parameter(name + ".weight", Coord::layer)), write(dx)});
    op(name + ".wgrad", Phase::wgrad, Gemm{out, in, tokens, true, false, false},
       {read(dy), read(x), accumulate(gradient(name + ".weight", Coord::layer))});
    if (shape_.model.add_bias_linear)
      op(name + ".bgrad", Phase::wgrad, Elementwise{ElementwiseFn::column_sum, tokens, out},
         {read(dy), accumulate(gradient(name + ".bias", Coord::layer))});
  }
  std::int64_t norm_stats() const { return has_beta() ? 2 : 1; }  // numbers a row that a norm keeps for its gradient
  void norm_forward(const std::string& name, View x, View y, View stats, const Expr& layer) {
    std::vector<Access> accesses = {read(x), read(parameter(name + ".weight", layer))};
    if (has_beta()) accesses.push_back(read(parameter(name + ".bias", layer)));
    accesses.push_back(write(y));
    accesses.push_back(write(stats));
    op(name + ".fprop", Phase::forward, norm(Pass::forward), std::move(accesses));
  }
  // `dx` accumulates when the residual branch's gradient is already in it.
  void norm_backward(const std::string& name, View dy, View x, View stats, Access dx, const Expr& layer) {
    std::vector<Access> accesses = {read(dy), read(x), read(stats), accumulate(gradient(name + ".weight", layer))};
    if (has_beta()) accesses.push_back(accumulate(gradient(name + ".bias", layer)));
    op(name + ".wgrad", Phase::wgrad, norm(Pass::wgrad), std::move(accesses));
    op(name + ".dgrad", Phase::dgrad, norm(Pass::dgrad),
       {read(dy), read(x), read(stats), read(parameter(name + ".weight", layer)), std::move(dx)});
  }

  // Turns q and k in place; nothing where positions are learned.
  void rope(const std::string& name, Phase phase, Pass pass, View qkv) {
    const Transformer& model = shape_.model;
    if (model.position_embedding_type != PositionEmbedding::rope) return;
    op(name, phase,
       Rope{pass, shape_.tokens(), model.num_attention_heads, model.kv_heads(), model.seq_length, model.head_dim(),
            model.rotary_base},
       {accumulate(qkv)});
  }

 private:
  bool has_beta() const { return shape_.model.normalization == Normalization::layer_norm; }
  Work norm(Pass pass) const {
    const std::int64_t tokens = shape_.tokens(), hidden = shape_.model.hidden_size;
    if (has_beta()) return LayerNorm{pass, tokens, hidden};
    return RmsNorm{pass, tokens, hidden};
  }

  Schedule& schedule_;
  const ParameterTensors& parameters_;
  LaneId lane_;
  Dtype dtype_;
  const BlockShape& shape_;
  Expr slot_;
  Block block_;
};

}  // namespace

ModelBlocks add_model_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                             const View& loss, LaneId compute) {
  const Transformer& model = shape.model;
  const std::int64_t tokens = shape.tokens(), hidden = model.hidden_size, ffn = model.ffn_hidden_size,
                     vocab = model.padded_vocab_size, layers = model.num_layers, heads = model.num_attention_heads,
                     qkv_size = model.qkv_size(), fc1_size = model.fc1_size();
  const std::string act = model.swiglu ? "swiglu" : "gelu";  // of the MLP
  BlockWriter w(schedule, shape, parameters, compute);

  const TensorId token_ids =
      add_tensor(schedule, "tokens", Dtype::i32, BufferKind::input, tokens, 1, 1, shape.micro_batches);
  const TensorId target_ids =
      add_tensor(schedule, "targets", Dtype::i32, BufferKind::input, tokens, 1, 1, shape.micro_batches);
  const View ids = whole(schedule, token_ids, 0, Coord::micro_batch),
             targets = whole(schedule, target_ids, 0, Coord::micro_batch);

  // Residual stream: x of layer l goes in, x of layer l + 1 comes out.
  const TensorId x = w.activation("x", tokens, hidden, layers + 1);
  const TensorId ln_1 = w.activation("ln_1.out", tokens, hidden, layers);
  const TensorId ln_1_stats = w.activation("ln_1.stats", tokens, w.norm_stats(), layers);
  const TensorId qkv = w.activation("qkv.out", tokens, qkv_size, layers);
  const TensorId attention = w.activation("attention.out", tokens, hidden, layers);
  const TensorId lse = w.activation("attention.lse", shape.micro_batch_size * heads, model.seq_length, layers);
  const TensorId x_mid = w.activation("x_mid", tokens, hidden, layers);
  const TensorId ln_2 = w.activation("ln_2.out", tokens, hidden, layers);
  const TensorId ln_2_stats = w.activation("ln_2.stats", tokens, w.norm_stats(), layers);
  const TensorId fc1 = w.activation("fc1.out", tokens, fc1_size, layers);
  const TensorId act_out = w.activation(act + ".out", tokens, ffn, layers);
  const TensorId ln_f = w.activation("ln_f.out", tokens, hidden, 1);
  const TensorId ln_f_stats = w.activation("ln_f.stats", tokens, w.norm_stats(), 1);
  const TensorId logits = w.activation("logits", tokens, vocab, 1);
  const TensorId branch = w.workspace("branch.out", tokens, hidden);  // of proj and fc2, before the residual addition
  const TensorId dx = w.workspace("dx", tokens, hidden);
  const TensorId d_hidden = w.workspace("d_hidden", tokens, hidden);  // gradient of a norm's or attention's output
  const TensorId d_qkv = w.workspace("d_qkv", tokens, qkv_size);
  const TensorId d_act = w.workspace("d_" + act, tokens, ffn);
  const TensorId d_fc1 = w.workspace("d_fc1", tokens, fc1_size);

  const Expr layer = Coord::layer;
  const Expr next_layer = layer + 1;
  const Attention attend{Pass::forward,    shape.micro_batch_size, heads, model.kv_heads(),
                         model.seq_length, model.head_dim(),       true};
  Attention attend_dgrad = attend;
  attend_dgrad.pass = Pass::dgrad;
  const bool positions = model.position_embedding_type == PositionEmbedding::learned_absolute;
  const Embedding embed{Pass::forward, tokens, hidden, vocab, model.seq_length, positions};
  Embedding embed_wgrad = embed;
  embed_wgrad.pass = Pass::wgrad;

  ModelBlocks blocks;
  w.begin("embedding.forward");
  std::vector<Access> looked_up = {read(ids), read(w.parameter("wte.weight"))};
  if (positions) looked_up.push_back(read(w.parameter("wpe.weight")));
  looked_up.push_back(write(w.act(x)));
  w.op("embedding.fprop", Phase::forward, embed, std::move(looked_up));
  blocks.embedding_forward = w.end();

  w.begin("layer.forward");
  w.norm_forward("ln_1", w.act(x, layer), w.act(ln_1, layer), w.act(ln_1_stats, layer), layer);
  w.linear_forward("qkv", hidden, qkv_size, w.act(ln_1, layer), w.act(qkv, layer));
  w.rope("rope.fprop", Phase::forward, Pass::forward, w.act(qkv, layer));
  w.op("attention.fprop", Phase::forward, attend,
       {read(w.act(qkv, layer)), write(w.act(attention, layer)), write(w.act(lse, layer))});
  w.linear_forward("proj", hidden, hidden, w.act(attention, layer), w.work(branch));
  w.op("residual_1.fprop", Phase::forward, Elementwise{ElementwiseFn::add, tokens, hidden},
       {read(w.act(x, layer)), read(w.work(branch)), write(w.act(x_mid, layer))});
  w.norm_forward("ln_2", w.act(x_mid, layer), w.act(ln_2, layer), w.act(ln_2_stats, layer), layer);
  w.linear_forward("fc1", hidden, fc1_size, w.act(ln_2, layer), w.act(fc1, layer));
  w.op(act + ".fprop", Phase::forward,
       Elementwise{model.swiglu ? ElementwiseFn::swiglu : ElementwiseFn::gelu, tokens, ffn},
       {read(w.act(fc1, layer)), write(w.act(act_out, layer))});
  w.linear_forward("fc2", ffn, hidden, w.act(act_out, layer), w.work(branch));
  w.op("residual_2.fprop", Phase::forward, Elementwise{ElementwiseFn::add, tokens, hidden},
       {read(w.act(x_mid, layer)), read(w.work(branch)), write(w.act(x, next_layer))});
  blocks.layer_forward = w.end();

  w.begin("head.forward");
  w.norm_forward("ln_f", w.act(x, layers), w.act(ln_f), w.act(ln_f_stats), 0);
  w.op("lm_head.fprop", Phase::forward, Gemm{tokens, vocab, hidden, false, true, false},
       {read(w.act(ln_f)), read(w.parameter(model.head_weight())), write(w.act(logits))});
  w.op("cross_entropy", Phase::forward, CrossEntropy{tokens, vocab, shape.loss_scale},
       {accumulate(w.act(logits)), read(targets), accumulate(loss)});
  blocks.head_forward = w.end();

  w.begin("head.backward");
  w.op("lm_head.dgrad", Phase::dgrad, Gemm{tokens, hidden, vocab, false, false, false},
       {read(w.act(logits)), read(w.parameter(model.head_weight())), write(w.work(d_hidden))});
  w.op("lm_head.wgrad", Phase::wgrad, Gemm{vocab, hidden, tokens, true, false, false},
       {read(w.act(logits)), read(w.act(ln_f)), accumulate(w.gradient(model.head_weight()))});
  w.norm_backward("ln_f", w.work(d_hidden), w.act(x, layers), w.act(ln_f_stats), write(w.work(dx)), 0);
  blocks.head_backward = w.end();

  w.begin("layer.backward");
  w.linear_backward("fc2", ffn, hidden, w.work(dx), w.act(act_out, layer), w.work(d_act));
  w.op(act + ".dgrad", Phase::dgrad,
       Elementwise{model.swiglu ? ElementwiseFn::swiglu_backward : ElementwiseFn::gelu_backward, tokens, ffn},
       {read(w.work(d_act)), read(w.act(fc1, layer)), write(w.work(d_fc1))});
  w.linear_backward("fc1", hidden, fc1_size, w.work(d_fc1), w.act(ln_2, layer), w.work(d_hidden));
  w.norm_backward("ln_2", w.work(d_hidden), w.act(x_mid, layer), w.act(ln_2_stats, layer), accumulate(w.work(dx)),
                  layer);
  w.linear_backward("proj", hidden, hidden, w.work(dx), w.act(attention, layer), w.work(d_hidden));
  w.op("attention.dgrad", Phase::dgrad, attend_dgrad,
       {read(w.act(qkv, layer)), read(w.act(attention, layer)), read(w.act(lse, layer)), read(w.work(d_hidden)),
        write(w.work(d_qkv))});
  w.rope("rope.dgrad", Phase::dgrad, Pass::dgrad, w.work(d_qkv));
  w.linear_backward("qkv", hidden, qkv_size, w.work(d_qkv), w.act(ln_1, layer), w.work(d_hidden));
  w.norm_backward("ln_1", w.work(d_hidden), w.act(x, layer), w.act(ln_1_stats, layer), accumulate(w.work(dx)), layer);
  blocks.layer_backward = w.end();

  w.begin("embedding.backward");
  std::vector<Access> tables = {read(ids), read(w.work(dx)), accumulate(w.gradient("wte.weight"))};
  if (positions) tables.push_back(accumulate(w.gradient("wpe.weight")));
  w.op("embedding.wgrad", Phase::wgrad, embed_wgrad, std::move(tables));
  blocks.embedding_backward = w.end();
  return blocks;
}

}  // namespace stretto
