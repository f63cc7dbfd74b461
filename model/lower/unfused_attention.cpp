#include "model/lower/unfused_attention.hpp"

namespace stretto {

UnfusedAttention::UnfusedAttention(BlockWriter& writer, const BlockShape& shape)
    : w_(writer),
      shape_(shape),
      heads_(shape.model.num_attention_heads / shape.tp.size),
      kv_heads_(shape.model.kv_heads() / shape.tp.size),
      rows_(shape.micro_batch_size * heads_ * shape.model.seq_length) {
  const std::int64_t keys = shape.model.seq_length, layers = shape.model.num_layers;
  const BlockWriter::Role core{.is_again = shape.recompute.repeats(Recompute::Module::core_attn)};
  probabilities_ = w_.recomputable("attention.probabilities", rows_, keys, layers, core);
  scores_ = w_.workspace("attention.scores", rows_, keys);
  gradient_ = w_.workspace("d_attention.scores", rows_, keys);
  if (!drops()) return;
  mask_ = w_.recomputable("attention.mask", rows_, dropout(Pass::forward).mask_cols(), layers,
                          {.is_again = core.is_again, .is_mask = true});
  dropped_ = w_.recomputable("attention.dropped", rows_, keys, layers, core);
  d_dropped_ = w_.workspace("d_attention.dropped", rows_, keys);
}

AttentionProduct UnfusedAttention::product(AttentionFactor factor) const {
  return {factor, shape_.micro_batch_size, heads_, kv_heads_, shape_.model.seq_length, shape_.model.head_dim(), true};
}

// A sample's rows are the queries of the rank's heads, which are a subset of all heads.
Dropout UnfusedAttention::dropout(Pass pass) const {
  Dropout work;
  work.pass = pass;
  work.rows = rows_;
  work.cols = shape_.model.seq_length;
  work.seq = heads_ * shape_.model.seq_length;
  work.probability = shape_.model.attention_dropout;
  work.site = DropoutSite::attention;
  work.rows_before = shape_.tp.place * Expr(work.seq);
  work.keeps_mask = true;
  return work;
}

void UnfusedAttention::forward(const View& qkv, const View& out, const std::string& suffix) {
  const View probabilities = of_layer(probabilities_);
  w_.op("attention.scores.fprop" + suffix, Phase::forward, product(AttentionFactor::scores),
        {read(qkv), write(w_.work(scores_))});
  Softmax softmax{Pass::forward, rows_, shape_.model.seq_length, true};
  std::vector<Access> accesses = {read(w_.work(scores_)), write(probabilities)};
  if (shape_.masks_documents) {
    softmax.by_document = true;
    softmax.heads = heads_;
    accesses.push_back(read(w_.documents()));
  }
  w_.op("attention.softmax.fprop" + suffix, Phase::forward, softmax, std::move(accesses));
  if (drops())
    w_.op("attention.dropout.fprop" + suffix, Phase::forward, dropout(Pass::forward),
          {read(probabilities), read(w_.dropout_key()), write(of_layer(dropped_)), write(of_layer(mask_))});
  w_.op("attention.context.fprop" + suffix, Phase::forward, product(AttentionFactor::context),
        {read(drops() ? of_layer(dropped_) : probabilities), read(qkv), write(out)});
}

void UnfusedAttention::backward(const View& qkv, const View& d_out, const View& d_qkv) {
  // q, k and v have the columns that Attention gives them.
  const std::int64_t head_dim = shape_.model.head_dim(), q_cols = heads_ * head_dim, k_cols = kv_heads_ * head_dim;
  const auto columns = [&](std::int64_t first, std::int64_t count) {
    View view = d_qkv;
    view.offset = view.offset + Expr(first);
    view.cols = count;
    return view;
  };
  const View gradient = w_.work(gradient_), d_product = drops() ? w_.work(d_dropped_) : gradient;
  w_.op("attention.dv.dgrad", Phase::dgrad, product(AttentionFactor::dv),
        {read(of_layer(drops() ? dropped_ : probabilities_)), read(d_out), write(columns(q_cols + k_cols, k_cols))});
  w_.op("attention.dp.dgrad", Phase::dgrad, product(AttentionFactor::dp), {read(d_out), read(qkv), write(d_product)});
  if (drops())
    w_.op("attention.dropout.dgrad", Phase::dgrad, dropout(Pass::dgrad),
          {read(d_product), read(of_layer(mask_)), write(gradient)});
  w_.op("attention.softmax.dgrad", Phase::dgrad, Softmax{Pass::dgrad, rows_, shape_.model.seq_length, true},
        {read(of_layer(probabilities_)), accumulate(gradient)});
  w_.op("attention.dq.dgrad", Phase::dgrad, product(AttentionFactor::dq),
        {read(gradient), read(qkv), write(columns(0, q_cols))});
  w_.op("attention.dk.dgrad", Phase::dgrad, product(AttentionFactor::dk),
        {read(gradient), read(qkv), write(columns(q_cols, k_cols))});
}

}  // namespace stretto
