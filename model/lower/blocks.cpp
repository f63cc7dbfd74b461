#include "model/lower/blocks.hpp"

#include "model/lower/block_writer.hpp"

namespace stretto {
namespace {

// Input and output of every chunk of the model. Inside a chunk the output of a layer is the input of the next; what a
// chunk sends on is in buffers of their own, which are free again when it has been sent.
struct ChunkEnds {
  TensorId input = 0;       // [chunk][slot]
  TensorId output = 0;      // [chunk][slot · output_buffers + buffer]
  TensorId next_input = 0;  // [layer][the same]: what a layer writes
};

ChunkEnds add_chunk_ends(Schedule& schedule, BlockWriter& w, const BlockShape& shape, TensorId x) {
  const std::int64_t slots = shape.most_slots(), buffers = shape.output_buffers;
  const std::int64_t rows = schedule.tensors[x].rows, cols = schedule.tensors[x].cols;
  const TensorId sent = w.workspace("x.sent", rows, cols, buffers);
  const auto input_of = [&](std::int64_t layer, std::int64_t slot) {
    return schedule.tensors[x].places[static_cast<std::size_t>(layer * slots + slot)];
  };
  std::vector<TensorPlace> inputs, outputs, next_inputs;
  const auto chunks = static_cast<std::int64_t>(shape.chunks.size());
  for (const ModelChunk& chunk : shape.chunks)
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      inputs.push_back(input_of(chunk.first_layer, slot));
      for (std::int64_t buffer = 0; buffer < buffers; ++buffer)
        outputs.push_back(chunk.layers() == 0 || chunk.has_head
                              ? input_of(chunk.end_layer, slot)
                              : schedule.tensors[sent].places[static_cast<std::size_t>(buffer)]);
    }
  for (std::int64_t c = 0; c < chunks; ++c)
    for (std::int64_t layer = shape.chunks[c].first_layer; layer < shape.chunks[c].end_layer; ++layer)
      for (std::int64_t i = 0; i < slots * buffers; ++i)
        next_inputs.push_back(layer + 1 == shape.chunks[c].end_layer
                                  ? outputs[static_cast<std::size_t>(c * slots * buffers + i)]
                                  : input_of(layer + 1, i / buffers));
  return {w.family("chunk.input", rows, cols, chunks, slots, std::move(inputs)),
          w.family("chunk.output", rows, cols, chunks, slots * buffers, std::move(outputs)),
          w.family("x.next", rows, cols, shape.model.num_layers, slots * buffers, std::move(next_inputs))};
}

}  // namespace

ModelBlocks add_model_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                             const View& loss, LaneId compute) {
  const Transformer& model = shape.model;
  const std::int64_t tp = shape.tp, layers = model.num_layers, hidden = model.hidden_size;
  // This rank's parts of what tensor parallelism cuts.
  const std::int64_t ffn = model.ffn_hidden_size / tp, heads = model.num_attention_heads / tp, attended = hidden / tp,
                     qkv_size = model.qkv_size() / tp, fc1_size = model.fc1_size() / tp,
                     vocab = model.padded_vocab_size / tp;
  const std::string act = model.swiglu ? "swiglu" : "gelu";  // of the MLP
  BlockWriter w(schedule, shape, parameters, compute);
  const std::int64_t tokens = w.tokens(), rows = w.residual_rows();

  const TensorId token_ids =
      add_tensor(schedule, "tokens", Dtype::i32, BufferKind::input, tokens, 1, 1, shape.micro_batches);
  const TensorId target_ids =
      add_tensor(schedule, "targets", Dtype::i32, BufferKind::input, tokens, 1, 1, shape.micro_batches);
  schedule.step_data.tokens = token_ids;
  schedule.step_data.targets = target_ids;
  const View ids = whole(schedule, token_ids, 0, Coord::micro_batch),
             targets = whole(schedule, target_ids, 0, Coord::micro_batch);

  // Residual stream: x of layer l goes in, x of layer l + 1 comes out.
  const TensorId x = w.recomputable("x", rows, hidden, layers + 1, {.is_input = true});
  const TensorId ln_1 = w.recomputable("ln_1.out", rows, hidden, layers);
  const TensorId ln_1_stats = w.recomputable("ln_1.stats", rows, w.norm_stats(), layers, {.is_statistics = true});
  const TensorId qkv = w.recomputable("qkv.out", tokens, qkv_size, layers);
  const TensorId attention = w.recomputable("attention.out", tokens, attended, layers, {.is_core = true});
  const TensorId lse = w.recomputable("attention.lse", shape.micro_batch_size * heads, model.seq_length, layers,
                                      {.is_core = true, .is_statistics = true});
  const TensorId x_mid = w.recomputable("x_mid", rows, hidden, layers);
  const TensorId ln_2 = w.recomputable("ln_2.out", rows, hidden, layers);
  const TensorId ln_2_stats = w.recomputable("ln_2.stats", rows, w.norm_stats(), layers, {.is_statistics = true});
  const TensorId fc1 = w.recomputable("fc1.out", tokens, fc1_size, layers);
  const TensorId act_out = w.recomputable(act + ".out", tokens, ffn, layers);
  // A weight gradient that is put off needs an instance of its operands for its micro-batch alone. The other
  // micro-batches share theirs as all activations are shared, by slot.
  const std::int64_t kept = shape.deferred + (shape.deferred < shape.micro_batches ? shape.slots.back() : 0);
  const Expr kept_slot = select_le(Expr(Coord::micro_batch), shape.deferred - 1, Coord::micro_batch,
                                   Expr(Coord::slot) + Expr(shape.deferred));
  const auto keep = [&](const std::string& name, std::int64_t cols_, std::int64_t rows_) {
    if (shape.deferred == 0) return w.act(w.activation(name, rows_, cols_, 1));
    return whole(schedule,
                 add_tensor(schedule, name, schedule.compute_dtype, BufferKind::activation, rows_, cols_, 1, kept), 0,
                 kept_slot);
  };
  const View ln_f = keep("ln_f.out", hidden, rows);
  const TensorId ln_f_stats = add_tensor(schedule, "ln_f.stats", w.statistics_type(), BufferKind::activation, rows,
                                         w.norm_stats(), 1, shape.slots.back());
  const View logits = keep("logits", vocab, tokens);
  // Of proj and fc2, before the residual addition; nothing has it where that is a part of them.
  const TensorId branch = shape.residual_fusion ? TensorId{} : w.workspace("branch.out", tokens, hidden);
  const TensorId dx = w.workspace("dx", rows, hidden, shape.gradient_buffers);
  const TensorId d_hidden = w.workspace("d_hidden", tokens, hidden);  // gradient of a norm's output
  const TensorId d_attention = w.workspace("d_attention", tokens, attended);
  const TensorId d_qkv = w.workspace("d_qkv", tokens, qkv_size);
  const TensorId d_fc1 = w.workspace("d_fc1", tokens, fc1_size);
  const TensorId d_act = shape.gelu_fusion ? d_fc1 : w.workspace("d_" + act, tokens, ffn);
  // With sequence parallelism, this rank's rows of the sums.
  const TensorId branch_part = shape.sequence_parallel ? w.workspace("branch.part", rows, hidden) : branch;
  const TensorId d_part = shape.sequence_parallel ? w.workspace("d_hidden.part", rows, hidden) : d_hidden;

  const TensorId d_branch = w.drops() ? w.workspace("d_branch", rows, hidden) : dx;

  const Expr layer = Coord::layer;
  const View d_x = whole(schedule, dx, 0, Coord::buffer);
  const bool positions = model.position_embedding_type == PositionEmbedding::learned_absolute;
  const Embedding embed{Pass::forward,    tokens,    hidden, model.padded_vocab_size,
                        model.seq_length, positions, tp,     shape.tp_place};
  Embedding embed_wgrad = embed;
  embed_wgrad.pass = Pass::wgrad;

  ModelBlocks blocks;
  blocks.gradient = dx;
  View x_next = w.act(x, layer + 1);
  if (shape.chunks.size() > 1) {
    const ChunkEnds ends = add_chunk_ends(schedule, w, shape, x);
    blocks.chunk_input = ends.input;
    blocks.chunk_output = ends.output;
    x_next =
        whole(schedule, ends.next_input, layer, Expr(Coord::slot) * Expr(shape.output_buffers) + Expr(Coord::buffer));
  }
  w.begin("embedding.forward");
  const View embedded = shape.sequence_parallel || w.drops() ? w.work(branch) : w.act(x);
  std::vector<Access> looked_up = {read(ids), read(w.parameter("wte.weight"))};
  if (positions) looked_up.push_back(read(w.parameter("wpe.weight")));
  looked_up.push_back(write(embedded));
  w.op("embedding.fprop", Phase::forward, embed, std::move(looked_up));
  const View embedding_sum =
      w.summed("embedding", Phase::forward, embedded, w.drops() ? w.work(branch_part) : w.act(x));
  if (w.drops()) w.dropout("embedding.dropout", embedding_sum, w.act(x), DropoutSite::embedding);
  blocks.embedding_forward = w.end();

  const auto row_layer = [&](const std::string& name, std::int64_t in, const View& input, const std::string& addition,
                             const View& before, const View& after, DropoutSite site) {
    if (shape.residual_fusion) return w.row_forward(name, in, hidden, input, after, before);
    w.row_forward(name, in, hidden, input, w.work(branch));
    const View sum = w.summed(name, Phase::forward, w.work(branch), w.work(branch_part));
    w.residual(addition, name, before, sum, after, site);
  };
  w.begin("layer.forward");
  w.norm_forward("ln_1", w.act(x, layer), w.act(ln_1, layer), w.act(ln_1_stats, layer), layer);
  w.column_forward("qkv", hidden, qkv_size, w.gathered("qkv.all_gather", Phase::forward, w.act(ln_1, layer)),
                   w.act(qkv, layer));
  w.rope("rope.fprop", Phase::forward, Pass::forward, w.act(qkv, layer));
  const std::vector<Access> attended_by = {read(w.act(qkv, layer)), write(w.act(attention, layer)),
                                           write(w.act(lse, layer))};
  w.attention("attention.fprop", Pass::forward, attended_by);
  row_layer("proj", attended, w.act(attention, layer), "residual_1.fprop", w.act(x, layer), w.act(x_mid, layer),
            DropoutSite::residual_1);
  w.norm_forward("ln_2", w.act(x_mid, layer), w.act(ln_2, layer), w.act(ln_2_stats, layer), layer);
  w.column_forward("fc1", hidden, fc1_size, w.gathered("fc1.all_gather", Phase::forward, w.act(ln_2, layer)),
                   w.act(fc1, layer), shape.gelu_fusion ? std::optional(w.act(act_out, layer)) : std::nullopt);
  if (!shape.gelu_fusion)
    w.op(act + ".fprop", Phase::forward,
         Elementwise{model.swiglu ? ElementwiseFn::swiglu : ElementwiseFn::gelu, tokens, ffn},
         {read(w.act(fc1, layer)), write(w.act(act_out, layer))});
  row_layer("fc2", ffn, w.act(act_out, layer), "residual_2.fprop", w.act(x_mid, layer), x_next,
            DropoutSite::residual_2);
  blocks.layer_forward = w.end();
  if (shape.recompute.granularity == Recompute::Granularity::full) {
    blocks.layer_recompute = w.copy(blocks.layer_forward, "layer.recompute", ".recompute");
    const std::vector<OpId>& ops = schedule.blocks[blocks.layer_recompute].ops;
    while (schedule.operations[ops[blocks.recompute_inner]].name != "fc2.fprop.recompute") ++blocks.recompute_inner;
  }

  w.begin("head.forward");
  w.norm_forward("ln_f", w.act(x, layers), ln_f, w.act(ln_f_stats), 0);
  const View head_in = w.gathered("lm_head.all_gather", Phase::forward, ln_f);
  w.op("lm_head.fprop", Phase::forward, Gemm{tokens, vocab, hidden, false, true, false},
       {read(head_in), read(w.parameter(shape.head_weight)), write(logits)});
  w.cross_entropy(logits, targets, loss);
  blocks.head_forward = w.end();

  w.begin("head.backward");
  const View d_ln_f = w.column_backward("lm_head", hidden, vocab, logits, ln_f, w.work(d_hidden), w.work(d_part),
                                        shape.head_weight, false, shape.deferred == 0);
  w.norm_backward("ln_f", d_ln_f, w.act(x, layers), w.act(ln_f_stats), write(d_x), 0);
  blocks.head_backward = w.end();
  if (shape.deferred > 0) {
    w.begin("head.wgrad");
    w.column_wgrad("lm_head", hidden, vocab, logits, ln_f, shape.head_weight, false);
    blocks.head_wgrad = w.end();
  }

  w.begin("layer.backward");
  w.row_backward("fc2", ffn, hidden, w.dropped("residual_2.dgrad", d_x, d_branch, DropoutSite::residual_2),
                 w.act(act_out, layer), w.work(d_act),
                 shape.gelu_fusion ? std::optional(w.act(fc1, layer)) : std::nullopt);
  if (!shape.gelu_fusion)
    w.op(act + ".dgrad", Phase::dgrad,
         Elementwise{model.swiglu ? ElementwiseFn::swiglu_backward : ElementwiseFn::gelu_backward, tokens, ffn},
         {read(w.work(d_act)), read(w.act(fc1, layer)), write(w.work(d_fc1))});
  const View d_ln_2 = w.column_backward("fc1", hidden, fc1_size, w.work(d_fc1), w.act(ln_2, layer), w.work(d_hidden),
                                        w.work(d_part), "fc1.weight");
  w.norm_backward("ln_2", d_ln_2, w.act(x_mid, layer), w.act(ln_2_stats, layer), accumulate(d_x), layer);
  if (shape.recompute.granularity == Recompute::Granularity::selective)
    w.attention("attention.fprop.recompute", Pass::forward, attended_by);
  w.row_backward("proj", attended, hidden, w.dropped("residual_1.dgrad", d_x, d_branch, DropoutSite::residual_1),
                 w.act(attention, layer), w.work(d_attention));
  w.attention("attention.dgrad", Pass::dgrad,
              {read(w.act(qkv, layer)), read(w.act(attention, layer)), read(w.act(lse, layer)),
               read(w.work(d_attention)), write(w.work(d_qkv))});
  w.rope("rope.dgrad", Phase::dgrad, Pass::dgrad, w.work(d_qkv));
  const View d_ln_1 = w.column_backward("qkv", hidden, qkv_size, w.work(d_qkv), w.act(ln_1, layer), w.work(d_hidden),
                                        w.work(d_part), "qkv.weight");
  w.norm_backward("ln_1", d_ln_1, w.act(x, layer), w.act(ln_1_stats, layer), accumulate(d_x), layer);
  blocks.layer_backward = w.end();

  w.begin("embedding.backward");
  const View d_embedded = w.gathered("embedding.all_gather_wgrad", Phase::wgrad,
                                     w.dropped("embedding.dropout.dgrad", d_x, d_branch, DropoutSite::embedding));
  std::vector<Access> tables = {read(ids), read(d_embedded), accumulate(w.gradient("wte.weight"))};
  if (positions) tables.push_back(accumulate(w.gradient("wpe.weight")));
  w.op("embedding.wgrad", Phase::wgrad, embed_wgrad, std::move(tables));
  blocks.embedding_backward = w.end();
  return blocks;
}

}  // namespace stretto
