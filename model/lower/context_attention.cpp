#include "model/lower/context_attention.hpp"

#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {

std::vector<bool> ContextAttention::layers_passing_qkv(const BlockShape& shape) {
  std::vector<bool> passing;
  for (std::int64_t layer = 0; layer < shape.model.num_layers; ++layer)
    passing.push_back(shape.cp.kinds[shape.kind(layer).context].exchange.exists() &&
                      !shape.recompute.repeats(Recompute::Module::core_attn));
  return passing;
}

ContextAttention::ContextAttention(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, std::size_t kind,
                                   Shared& shared)
    : schedule_(schedule),
      w_(writer),
      shape_(shape),
      kind_(shape.cp.kinds[kind]),
      tokens_(shape.tokens()),
      rows_(tokens_ * kind_.exchange.size),
      heads_(shape.model.num_attention_heads / shape.tp.size / kind_.exchange.size),
      kv_heads_(shape.model.kv_heads() / shape.tp.size / kind_.exchange.size),
      head_dim_(shape.model.head_dim()),
      q_cols_(heads_ * head_dim_),
      kv_cols_(2 * kv_heads_ * head_dim_),
      steps_(kind_.ring.size),
      qkv_(shared.qkv) {
  const std::int64_t layers = shape.model.num_layers, all = q_cols_ + kv_cols_;
  BlockWriter::Role core{.is_again = shape.recompute.repeats(Recompute::Module::core_attn)};
  for (std::int64_t layer = 0; layer < layers; ++layer) core.layers.push_back(shape.kind(layer).context == kind);
  BlockWriter::Role statistics = core;
  statistics.is_statistics = true;
  lse_ = w_.recomputable(named(".lse"), shape.micro_batch_size * heads_, rows_ / shape.micro_batch_size, layers,
                         statistics);
  shared.forward.taken = shared.backward.taken = 0;
  const auto forward = [&](const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots = 1) {
    return w_.workspace(name, rows, cols, slots, shared.forward);
  };
  const auto backward = [&](const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots = 1) {
    return w_.workspace(name, rows, cols, slots, shared.backward);
  };
  if (exchanges()) {
    qkv_heads_ = w_.recomputable(named(".qkv"), rows_, all, layers, core);
    out_heads_ = w_.recomputable(named(".out_heads"), rows_, q_cols_, layers, core);
    sent_ = forward(named(".sent"), rows_, all);
    received_out_ = forward(named(".received"), rows_, q_cols_);
    d_sent_ = backward(gradient_named(".sent"), rows_, q_cols_);
    d_out_heads_ = backward(gradient_named(".heads"), rows_, q_cols_);
    d_qkv_heads_ = backward("d_qkv" + kind_.suffix + ".heads", rows_, all);
    d_received_ = backward("d_qkv" + kind_.suffix + ".received", rows_, all);
  }
  if (kind_.has_ring()) {
    kv_last_ = w_.recomputable(named(".kv_last"), rows_, kv_cols_, layers, core);
    kv_ = forward(named(".kv"), rows_, kv_cols_, 2);
    outs_ = forward(named(".outs"), steps_ * rows_, q_cols_);
    lses_ = add_tensor(schedule, named(".lses"), w_.statistics_type(), BufferKind::workspace,
                       steps_ * shape.micro_batch_size * heads_, rows_ / shape.micro_batch_size);
    kv_dkv_ = backward(gradient_named(".kv"), 2 * rows_, kv_cols_, 2);
    dkv_ = backward(gradient_named(".dkv"), rows_, kv_cols_);
    dqs_ = backward(gradient_named(".dqs"), steps_ * rows_, q_cols_);
  } else if (kind_.gathers) {
    kv_all_ = forward(named(".kv_all"), steps_ * rows_, kv_cols_);
    dkv_all_ = backward(gradient_named(".kv_all"), steps_ * rows_, kv_cols_);
    dkv_ = backward(gradient_named(".dkv"), rows_, kv_cols_);
    dqs_ = backward(gradient_named(".dqs"), rows_, q_cols_);
  }
}

void ContextAttention::pack(const std::string& name, Phase phase, const View& qkv, const View& kv) {
  w_.op(name, phase, PackKv{rows_, heads_, kv_heads_, head_dim_}, {read(qkv), write(kv)});
}

void ContextAttention::join(std::vector<View> dkvs, const View& dqkv) {
  std::vector<Access> accesses = {read(w_.work(dqs_))};
  for (View& dkv : dkvs) accesses.push_back(read(std::move(dkv)));
  accesses.push_back(write(dqkv));
  const auto sums = static_cast<std::int64_t>(dkvs.size());
  w_.op(named(".sum_dqkv"), Phase::dgrad,
        JoinQkv{schedule_.tensors[dqs_].rows / rows_, sums, rows_, heads_, kv_heads_, head_dim_}, std::move(accesses));
}

// Queries are those of this rank; after an exchange they are those of its group.
Attention ContextAttention::attention(Pass pass, const Expr& first_key_part, std::int64_t key_parts) const {
  const Transformer& model = shape_.model;
  const std::int64_t of = shape_.cp.size, group = kind_.exchange.size;
  return {.pass = pass,
          .batch = shape_.micro_batch_size,
          .heads = heads_,
          .kv_heads = kv_heads_,
          .seq = model.seq_length,
          .head_dim = head_dim_,
          .causal = true,
          .dropout = model.attention_dropout,
          .first_head = shape_.tp.place * Expr(heads_ * group) + kind_.exchange.place * Expr(heads_),
          .queries = {of, kind_.ring.place * Expr(group), group},
          .keys = {of, first_key_part, key_parts},
          .kv_apart = steps_ > 1,
          .by_document = shape_.masks_documents,
          .document_tokens = shape_.document_tokens};
}

void ContextAttention::attend(const std::string& name, const Attention& work, std::vector<Access> accesses) {
  if (work.dropout > 0) accesses.push_back(read(w_.dropout_key()));
  if (work.by_document) accesses.push_back(read(w_.documents()));
  w_.op(name, work.pass == Pass::forward ? Phase::forward : Phase::dgrad, work, std::move(accesses));
}

// ---- exchange of heads for tokens ----

void ContextAttention::split(const std::string& name, Phase phase, Pass pass, std::int64_t kv_heads, const View& from,
                             const View& to) {
  const std::int64_t groups = kind_.exchange.size;
  w_.op(name, phase, SplitHeads{pass, groups, tokens_, heads_ * groups, kv_heads * groups, head_dim_},
        {read(from), write(to)});
}

void ContextAttention::swap(const std::string& name, Phase phase, const View& from, const View& to) {
  w_.communicate(name, phase, kind_.exchange, CollectiveKind::all_to_all, from.rows * from.cols,
                 {read(from), write(to)});
}

void ContextAttention::forward(const View& out, const std::string& suffix) {
  if (!exchanges()) return core_forward(qkv(), out, suffix);
  const View in = w_.act(qkv_heads_, Coord::layer), made = w_.act(out_heads_, Coord::layer);
  split(named(".split_qkv") + suffix, Phase::forward, Pass::forward, kv_heads_, qkv(), w_.work(sent_));
  swap(named(".all_to_all_qkv") + suffix, Phase::forward, w_.work(sent_), in);
  core_forward(in, made, suffix);
  swap(named(".all_to_all_out") + suffix, Phase::forward, made, w_.work(received_out_));
  split(named(".join_out") + suffix, Phase::forward, Pass::backward, 0, w_.work(received_out_), out);
}

void ContextAttention::backward(const View& out, const View& dout, const View& dqkv) {
  if (!exchanges()) return core_backward(qkv(), out, dout, dqkv);
  split(named(".split_dout"), Phase::dgrad, Pass::forward, 0, dout, w_.work(d_sent_));
  swap(named(".all_to_all_dout"), Phase::dgrad, w_.work(d_sent_), w_.work(d_out_heads_));
  core_backward(w_.act(qkv_heads_, Coord::layer), w_.act(out_heads_, Coord::layer), w_.work(d_out_heads_),
                w_.work(d_qkv_heads_));
  swap(named(".all_to_all_dqkv"), Phase::dgrad, w_.work(d_qkv_heads_), w_.work(d_received_));
  split(named(".join_dqkv"), Phase::dgrad, Pass::backward, kv_heads_, w_.work(d_received_), dqkv);
}

// ---- gather of all keys ----

void ContextAttention::core_forward(const View& qkv, const View& out, const std::string& suffix) {
  if (kind_.has_ring()) return ring_forward(qkv, out, suffix);
  const View lse = w_.act(lse_, Coord::layer);
  const Attention work = attention(Pass::forward, 0, shape_.cp.size);
  if (steps_ == 1) return attend(named(".fprop") + suffix, work, {read(qkv), write(out), write(lse)});
  gather_keys(qkv, Phase::forward, suffix);
  attend(named(".fprop") + suffix, work, {read(qkv), read(w_.work(kv_all_)), write(out), write(lse)});
}

void ContextAttention::core_backward(const View& qkv, const View& out, const View& dout, const View& dqkv) {
  if (kind_.has_ring()) return ring_backward(qkv, out, dout, dqkv);
  const View lse = w_.act(lse_, Coord::layer);
  const Attention work = attention(Pass::dgrad, 0, shape_.cp.size);
  if (steps_ == 1) return attend(named(".dgrad"), work, {read(qkv), read(out), read(lse), read(dout), write(dqkv)});
  gather_keys(qkv, Phase::dgrad, ".dgrad");
  const View all = w_.work(dkv_all_), own = w_.work(dkv_);
  attend(named(".dgrad"), work,
         {read(qkv), read(w_.work(kv_all_)), read(out), read(lse), read(dout), write(w_.work(dqs_)), write(all)});
  w_.communicate(named(".reduce_scatter_dkv"), Phase::dgrad, kind_.ring, CollectiveKind::reduce_scatter,
                 all.rows * all.cols, {read(all), write(own)});
  join({own}, dqkv);
}

void ContextAttention::gather_keys(const View& qkv, Phase phase, const std::string& suffix) {
  View own = w_.work(kv_all_);
  own.rows = rows_;
  own.offset = kind_.ring.place * Expr(rows_ * kv_cols_);
  pack(named(".pack_kv") + suffix, phase, qkv, own);
  w_.communicate(named(".all_gather_kv") + suffix, phase, kind_.ring, CollectiveKind::all_gather,
                 steps_ * rows_ * kv_cols_, {read(own), write(w_.work(kv_all_))});
}

// ---- ring of keys ----

View ContextAttention::part_of(TensorId parts, std::int64_t part, std::int64_t rows) const {
  View view = w_.work(parts);
  view.rows = rows;
  view.offset = Expr(part * rows * view.ld);
  return view;
}

View ContextAttention::whole_slot(std::int64_t slot) const { return whole(schedule_, kv_dkv_, 0, slot % 2); }

View ContextAttention::half_of_slot(std::int64_t slot, bool is_gradient) const {
  View half = whole_slot(slot);
  half.rows = rows_;
  if (is_gradient) half.offset = Expr(rows_ * kv_cols_);
  return half;
}

void ContextAttention::ring_forward(const View& qkv, const View& out, const std::string& suffix) {
  const std::int64_t statistics = shape_.micro_batch_size * heads_;
  const auto kv_at = [&](std::int64_t step) {
    return step + 1 == steps_ ? w_.act(kv_last_, Coord::layer) : whole(schedule_, kv_, 0, step % 2);
  };
  pack(named(".pack_kv") + suffix, Phase::forward, qkv, kv_at(0));
  for (std::int64_t i = 0; i < steps_; ++i) {
    const std::string number = "." + std::to_string(i) + suffix;
    if (i + 1 < steps_) w_.exchange(named(".kv"), number, Phase::forward, kind_.ring, 1, kv_at(i), kv_at(i + 1));
    const Expr group = mod(kind_.ring.place - Expr(i), Expr(steps_));
    attend(named(".fprop") + number, attention(Pass::forward, group * Expr(kind_.exchange.size), kind_.exchange.size),
           {read(qkv), read(kv_at(i)), write(part_of(outs_, i, rows_)), write(part_of(lses_, i, statistics))});
  }
  w_.op(named(".merge") + suffix, Phase::forward,
        AttentionMerge{steps_, shape_.micro_batch_size, heads_, rows_ / shape_.micro_batch_size, head_dim_,
                       kind_.exchange.size},
        {read(w_.work(outs_)), read(w_.work(lses_)), write(out), write(w_.act(lse_, Coord::layer))});
}

void ContextAttention::ring_backward(const View& qkv, const View& out, const View& dout, const View& dqkv) {
  const auto kv_at = [&](std::int64_t step) {
    return step == 0 ? w_.act(kv_last_, Coord::layer) : half_of_slot(step, false);
  };
  const View own = w_.work(dkv_);
  for (std::int64_t i = 0; i < steps_; ++i) {
    const std::string number = "." + std::to_string(i);
    const bool is_first = i == 0, is_last = i + 1 == steps_;
    const View sent = is_first ? kv_at(0) : is_last ? half_of_slot(i, true) : whole_slot(i);
    const View came = is_first ? kv_at(1) : is_last ? half_of_slot(i + 1, true) : whole_slot(i + 1);
    w_.exchange(named(".dkv"), number, Phase::dgrad, kind_.ring, -1, sent, came);
    const Expr group = mod(kind_.ring.place + Expr(1 + i), Expr(steps_));
    const View summed = half_of_slot(i + 1, true);
    attend(named(".dgrad") + number, attention(Pass::dgrad, group * Expr(kind_.exchange.size), kind_.exchange.size),
           {read(qkv), read(kv_at(i)), read(out), read(w_.act(lse_, Coord::layer)), read(dout),
            write(part_of(dqs_, i, rows_)), write(is_first ? summed : own)});
    if (is_last)
      join({summed, own}, dqkv);
    else if (!is_first)
      w_.op(named(".sum_dkv") + number, Phase::dgrad, Elementwise{ElementwiseFn::accumulate, rows_, kv_cols_},
            {read(own), accumulate(summed)});
  }
}

}  // namespace stretto
