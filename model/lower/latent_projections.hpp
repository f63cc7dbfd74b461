#pragma once
#include <string>

#include "model/lower/block_writer.hpp"

namespace stretto {

// Writes what multi-latent attention has in place of the product qkv, as Megatron-LM's MLASelfAttention does. The
// products down to latent vectors, and the norms of these, are on this rank's tokens, with the same weights on every
// tensor-parallel rank; the products up are cut by heads like qkv, and under sequence parallelism all-gather latent
// vectors, which are short. References are borrowed and must outlive this object.
class LatentProjections {
 public:
  // Adds activations and workspaces.
  LatentProjections(BlockWriter& writer, const BlockShape& shape);

  // Writes queries, keys and values, turned by their positions, in Attention's layout, from x[R,H], the norm's output.
  void forward(const View& x, const View& qkv);
  // Writes the part behind the latent vectors' norms, from which q, k and v can be computed again.
  void up_forward(const View& x, const View& qkv);
  // Writes the backward pass of `d_qkv`, which it changes, and returns the view of the gradient of x: `part`[R,H], or
  // `all`[T,H] where every rank has all tokens.
  View backward(const View& d_qkv, const View& x, const View& all, const View& part);

 private:
  // A product down, the norm of its first `rank` columns, and a product up. Gradients are workspaces.
  struct Path {
    std::string name;                         // "q" or "kv"
    std::int64_t rank = 0, down = 0, up = 0;  // columns of the latent vector, of the products' results
    TensorId latent = 0, normalised = 0, stats = 0;
    TensorId d_latent = 0, d_normalised = 0, d_part = 0;
  };
  Path add_path(const std::string& name, std::int64_t rank, std::int64_t down, std::int64_t up);
  void down(const Path& path, const View& x);  // and the norm
  void up(const Path& path, const View& y);
  void up_and_down_backward(const Path& path, const View& dy, const View& x, const Access& dx);
  LatentHeads heads(Pass pass) const;
  View of_layer(TensorId tensor) const { return w_.act(tensor, Coord::layer); }
  bool cuts_tokens() const { return shape_.sequence_parallel; }

  BlockWriter& w_;
  const BlockShape& shape_;
  const LatentAttention& model_;
  const std::int64_t heads_, q_cols_;    // of this rank
  Path q_, kv_;                          // without q_lora_rank q_ is empty
  TensorId up_ = 0, d_up_ = 0;           // result of the product up of kv
  TensorId key_part_ = 0, key_ = 0;      // the shared key, under sequence parallelism
  TensorId d_key_ = 0, d_key_part_ = 0;  // its gradient, with tensor parallelism
};

}  // namespace stretto
