#pragma once
#include <optional>
#include <string>

#include "model/lower/block_writer.hpp"

namespace stretto {

// Writes the MLP of layers with experts, as Megatron-LM's MoELayer with its all-gather dispatcher: a shared expert on
// its own; the router, on this rank's tokens; tokens, indices and probabilities gathered over tp; copies of tokens
// sorted by expert; fc1, the activation times the probability, and fc2 of every expert, cut over tp like dense ones;
// and the sum of a token's copies, reduce-scattered over tp. T·topk rows whatever the router says. References are
// borrowed and must outlive this.
class ExpertLayers {
 public:
  // Adds activations and workspaces. `layers`: [layer] whether it has experts; empty: all have.
  ExpertLayers(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, const std::vector<bool>& layers);

  // Writes the forward pass of x[R,H], the norm's output, and returns the view of what the layer adds to the residual
  // stream, [R,H].
  View forward(const View& x);
  // Writes the backward pass of `dy`, the gradient of that result, and returns the view of the gradient of x: `part`,
  // or `all`[T,H] where every rank has all tokens.
  View backward(const View& dy, const View& x, const View& all, const View& part);

 private:
  // The two products of an MLP, and the activations that they keep.
  struct Mlp {
    std::int64_t width = 0, fc1 = 0;  // of this rank's part
    TensorId fc1_out = 0, act = 0;
    TensorId d_fc1 = 0, d_act = 0;
  };
  void add_experts();
  void add_shared();
  Route route(Pass pass) const;
  BalanceLoss balance(Pass pass) const;
  void shared_forward(const View& x);
  void shared_backward(const View& dy, const View& x);
  void router_backward(const View& x, const View& dx);
  void shared_activation(Pass pass);
  GroupedGemm product(Pass pass, std::int64_t n, std::int64_t k) const { return {pass, experts_, rows_, n, k}; }
  Permute permute(Pass pass, std::int64_t cols, bool apart = false) const {
    return {pass, w_.tokens(), topk_, cols, apart};
  }
  WeightedActivation activation(Pass pass) const { return {pass, rows_, mlp_.width, shape_.model.swiglu}; }
  // All-gathers [R,cols] of tensor-parallel ranks; `part` itself when R = T.
  View gathered(const std::string& name, const View& part, TensorId whole);
  TensorId kept(const std::string& name, std::int64_t rows, std::int64_t cols, BlockWriter::Role role = {}) const;
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, Dtype dtype) const;
  View of_layer(TensorId tensor) const { return w_.act(tensor, Coord::layer); }
  View weight(const char* name) const { return w_.parameter(name, Coord::layer); }
  void add_to_gradient(const std::string& name, const Work& work, std::vector<Access> read_by_it, const char* weight);
  bool cuts_tokens() const { return shape_.sequence_parallel; }

  Schedule& schedule_;
  BlockWriter& w_;
  const BlockShape& shape_;
  const Experts& model_;
  const std::vector<bool> layers_;
  const std::int64_t experts_, topk_, hidden_, rows_;  // rows_: T·topk
  Mlp mlp_, shared_;
  TensorId logits_ = 0, indices_ = 0, counts_ = 0, offsets_ = 0, positions_ = 0, sorted_ = 0, weights_ = 0;
  // Workspaces forward.
  TensorId probabilities_ = 0, all_indices_ = 0, all_probabilities_ = 0, fc2_out_ = 0, sum_ = 0, part_ = 0;
  TensorId shared_sum_ = 0, shared_out_ = 0, gate_ = 0, gated_ = 0;  // shared_out_ and gate_ are kept with a gate
  // Workspaces backward.
  TensorId d_sorted_ = 0, d_weights_ = 0, d_all_probabilities_ = 0, d_probabilities_ = 0, d_logits_ = 0;
  TensorId d_router_ = 0;  // d_logits_ in the type that products have
  TensorId d_shared_all_ = 0, d_shared_part_ = 0, d_shared_out_ = 0, d_gate_ = 0;
};

}  // namespace stretto
