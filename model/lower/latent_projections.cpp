#include "model/lower/latent_projections.hpp"

#include <utility>
#include <vector>

namespace stretto {
namespace {

View columns(View of, std::int64_t first, std::int64_t count) {
  of.offset = of.offset + Expr(first);
  of.cols = count;
  return of;
}

}  // namespace

LatentProjections::LatentProjections(BlockWriter& writer, const BlockShape& shape)
    : w_(writer),
      shape_(shape),
      model_(shape.model.latent),
      heads_(shape.model.num_attention_heads / shape.tp.size),
      q_cols_(heads_ * shape.model.head_dim()) {
  const std::int64_t tokens = w_.tokens(), rows = w_.residual_rows(), turned = model_.qk_pos_emb_head_dim;
  if (model_.q_lora_rank > 0) q_ = add_path("q", model_.q_lora_rank, model_.q_lora_rank, q_cols_);
  kv_ = add_path("kv", model_.kv_lora_rank, model_.kv_down_size(), shape.model.kv_up_size() / shape.tp.size);
  up_ = w_.workspace("kv_up.out", tokens, kv_.up);
  // A weight gradient of codes reads the codes of it.
  const std::vector<bool> passing = shape.low.is_on() ? shape.in_codes : std::vector<bool>{};
  d_up_ = shape.weights_in_units
              ? w_.recomputable("d_kv_up", tokens, kv_.up, shape.model.num_layers, {.passing = passing})
              : w_.workspace("d_kv_up", tokens, kv_.up);
  if (cuts_tokens()) {
    key_part_ = w_.workspace("shared_key.part", rows, turned);
    key_ = w_.workspace("shared_key", tokens, turned);
  }
  if (!shape.tp.exists()) return;
  d_key_ = w_.workspace("d_shared_key", tokens, turned);
  d_key_part_ = cuts_tokens() ? w_.workspace("d_shared_key.part", rows, turned) : d_key_;
}

LatentProjections::Path LatentProjections::add_path(const std::string& name, std::int64_t rank, std::int64_t down,
                                                    std::int64_t up) {
  const std::int64_t rows = w_.residual_rows(), layers = shape_.model.num_layers;
  Path path{.name = name, .rank = rank, .down = down, .up = up};
  path.latent = w_.recomputable(name + "_down.out", rows, down, layers, {});
  // Where the product up is of codes, they are kept in place of what they were made of.
  const bool is_kept = !shape_.low.is_on() || shape_.recompute.repeats(Recompute::Module::mla_up_proj);
  path.normalised = w_.recomputable(name + "_norm.out", rows, rank, layers,
                                    {.passing = is_kept ? std::vector<bool>{} : shape_.in_codes});
  path.stats = w_.recomputable(name + "_norm.stats", rows, w_.norm_stats(), layers, {.is_statistics = true});
  path.d_latent = w_.output_gradient("d_" + name + "_down", path.latent);
  path.d_normalised = w_.workspace("d_" + name + "_norm", w_.tokens(), rank);
  path.d_part = cuts_tokens() ? w_.workspace("d_" + name + "_norm.part", rows, rank) : path.d_normalised;
  return path;
}

LatentHeads LatentProjections::heads(Pass pass) const {
  return {pass,
          w_.tokens(),
          heads_,
          shape_.model.seq_length,
          model_.qk_head_dim,
          model_.qk_pos_emb_head_dim,
          model_.v_head_dim,
          shape_.model.rotary_base,
          model_.yarn,
          shape_.resets_positions};
}

void LatentProjections::down(const Path& path, const View& x) {
  const View latent = of_layer(path.latent);
  const std::string down = path.name + "_down";
  w_.whole_forward(down, x, latent);
  w_.norm_forward(path.name + "_norm", columns(latent, 0, path.rank), of_layer(path.normalised), of_layer(path.stats),
                  Coord::layer);
}

void LatentProjections::up(const Path& path, const View& y) {
  const std::string up = path.name + "_up";
  w_.column_forward(up, path.rank, path.up, of_layer(path.normalised), y);
}

void LatentProjections::forward(const View& x, const View& qkv) {
  if (model_.q_lora_rank > 0) down(q_, x);
  down(kv_, x);
  up_forward(x, qkv);
}

void LatentProjections::up_forward(const View& x, const View& qkv) {
  const View q = columns(qkv, 0, q_cols_), kv = columns(qkv, q_cols_, qkv.cols - q_cols_);
  if (model_.q_lora_rank > 0)
    up(q_, q);
  else
    w_.column_forward("q", x.cols, q_cols_, x, q);
  up(kv_, w_.work(up_));
  View key = columns(of_layer(kv_.latent), kv_.rank, model_.qk_pos_emb_head_dim);
  if (cuts_tokens()) {
    const View part = w_.work(key_part_), all = w_.work(key_);
    w_.op("shared_key.fprop", Phase::forward, Cast{part.rows * part.cols}, {read(key), write(part)});
    w_.communicate("shared_key.all_gather", Phase::forward, shape_.tp, CollectiveKind::all_gather, all.rows * all.cols,
                   {read(part), write(all)});
    key = all;
  }
  std::vector<Access> accesses = {read(w_.work(up_)), read(key), accumulate(q), write(kv)};
  if (shape_.resets_positions) accesses.push_back(read(w_.documents()));
  w_.op("heads.fprop", Phase::forward, heads(Pass::forward), std::move(accesses));
}

// Adds the gradient of x to `dx` or writes it.
void LatentProjections::up_and_down_backward(const Path& path, const View& dy, const View& x, const Access& dx) {
  const std::string down = path.name + "_down", norm = path.name + "_norm", up = path.name + "_up";
  const View d_latent = w_.read_by_weights(path.d_latent);
  const View d_normalised = w_.column_backward(up, path.rank, path.up, dy, of_layer(path.normalised),
                                               w_.work(path.d_normalised), w_.work(path.d_part));
  w_.norm_backward(norm, d_normalised, columns(of_layer(path.latent), 0, path.rank), of_layer(path.stats),
                   write(columns(d_latent, 0, path.rank)), Coord::layer);
  w_.whole_backward(down, d_latent, x, dx);
}

View LatentProjections::backward(const View& d_qkv, const View& x, const View& all, const View& part) {
  const View dq = columns(d_qkv, 0, q_cols_), dkv = columns(d_qkv, q_cols_, d_qkv.cols - q_cols_),
             d_up = w_.read_by_weights(d_up_),
             of_latent = columns(w_.read_by_weights(kv_.d_latent), kv_.rank, model_.qk_pos_emb_head_dim),
             d_key = shape_.tp.exists() ? w_.work(d_key_) : of_latent;
  std::vector<Access> accesses = {read(dkv), accumulate(dq), write(d_up), write(d_key)};
  if (shape_.resets_positions) accesses.push_back(read(w_.documents()));
  w_.op("heads.dgrad", Phase::dgrad, heads(Pass::dgrad), std::move(accesses));
  // A rank has summed over its own heads.
  if (shape_.tp.exists()) {
    const View sum = w_.summed("shared_key.dgrad", Phase::dgrad, d_key, w_.work(d_key_part_));
    w_.op("shared_key.dgrad", Phase::dgrad, Cast{sum.rows * sum.cols}, {read(sum), write(of_latent)});
  }
  View dx = cuts_tokens() ? part : all;
  if (model_.q_lora_rank > 0)
    up_and_down_backward(q_, dq, x, write(dx));
  else
    dx = w_.column_backward("q", x.cols, q_cols_, dq, x, all, part);
  up_and_down_backward(kv_, d_up, x, accumulate(dx));
  return dx;
}

}  // namespace stretto
