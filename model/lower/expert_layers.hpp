#pragma once
#include <functional>
#include <optional>
#include <string>

#include "model/lower/block_writer.hpp"

namespace stretto {

// Writes the MLP of layers with experts, as Megatron-LM's MoELayer: a shared expert on its own; the router, on this
// rank's tokens; copies of tokens sorted by expert; fc1, the activation times the probability, and fc2 of every expert;
// and the sum of a token's copies.
//
// Where tp cuts every expert like dense MLPs, tokens, indices and probabilities are gathered over tp first, and sums
// reduce-scattered over tp (the all-gather dispatcher). T·topk rows whatever the router says. Where other ranks cut
// experts, these do so (`expert_tokens`); and ranks that share experts may do so too: each sorts the copies that go to
// its experts.
//
// Where experts are whole, each rank sorts the copies of its R tokens. Where ranks share them (`ep`), ranks exchange
// the offsets of their rows, the rows and their probabilities, and sort by expert those that come (the all-to-all
// dispatcher). How many come depends on the router: buffers have room for `capacity_` rows. With padding every expert
// has as many rows of each rank, no size depends on the router, and ranks exchange no offsets.
//
// Rows may be codes on their way (`sends_codes`): forward those of tokens, and backward those of the gradients of the
// experts' results. A token becomes codes once, whichever experts it goes to; codes of a row and their scales are one
// row. Products read the codes that came; those along columns, for weight gradients, are made of them.
//
// References are borrowed and must outlive this.
class ExpertLayers {
 public:
  // Adds activations and workspaces. `layers`: [layer] whether it has experts; empty: all have.
  ExpertLayers(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, const std::vector<bool>& layers);

  // Writes the forward pass of x[R,H], the norm's output, and returns the view of what the layer adds to the residual
  // stream, [R,H].
  View forward(const View& x) { return pass_forward(x, false); }
  // Writes the backward pass of `dy`, the gradient of that result, and returns the view of the gradient of x: `part`,
  // or `all`[T,H] where every rank has all tokens.
  View backward(const View& dy, const View& x, const View& all, const View& part);
  // Returns the rows of this rank's experts.
  GroupedRows grouped_rows() const { return {local_, rows_, varies() ? capacity_ : 0, pads()}; }

 private:
  // The two products of an MLP, and the activations that they keep.
  struct Mlp {
    std::int64_t width = 0, fc1 = 0;  // of this rank's part
    TensorId fc1_out = 0, act = 0;
    TensorId d_fc1 = 0, d_act = 0;
  };
  void add_experts();
  void leave_room(TensorId tensor);
  void add_shared();
  // With `is_again` in a backward pass: all of it with Recompute::whole_layers, and otherwise what backward() reads;
  // then the result is x.
  View pass_forward(const View& x, bool is_again);
  bool repeats_all() const { return shape_.recompute.repeats(Recompute::Module::moe); }
  Route route(Pass pass) const;
  BalanceLoss balance(Pass pass) const;
  void share_counts(Phase phase);  // sums the balance loss's counts over the ranks whose tokens it is of
  // The shared expert up to its activation, and behind it. With a lane of its own the first part is beside dispatch,
  // forward, and the second beside combine; backward the other way round.
  void shared_up(const View& x);
  // Returns the shared expert's result; with `is_again` as pass_forward().
  View shared_down(const View& x, bool is_again);
  void shared_up_backward(const View& x);
  void shared_down_backward(const View& dy, const View& x);
  bool shared_is_beside() const { return model_.has_shared() && shape_.shared_expert != 0 && exchanges(); }
  void router_backward(const View& x, const View& dx);
  void shared_activation(Pass pass);
  GroupedGemm product(Pass pass, std::int64_t n, std::int64_t k) const {
    return {pass, local_, rows_, n, k, varies() ? capacity_ : 0, pads()};
  }
  // The operands of a product that it reads.
  std::vector<Access> of_product(const View& a, const View& b) const;
  // Products of the experts' layer of this name, of numbers or of codes.
  void multiply(const std::string& name, Pass pass, std::int64_t n, std::int64_t k, const View& a, const View& c);
  void weight_gradient(const std::string& name, std::int64_t n, std::int64_t k, const View& dy, const View& x);
  // Where each expert's rows begin; absent where padding makes them equally many.
  std::optional<View> offsets() const { return pads() ? std::nullopt : std::optional(of_layer(offsets_)); }
  Permute permute(Pass pass, std::int64_t cols, bool apart = false) const;
  void sort_tokens(const View& indices, const View& positions);
  TokenTransport transport() const {
    return exchanges() ? schedule_.communicators[shape_.ep.communicator].transport : TokenTransport::nccl;
  }
  void activate(const std::string& name, Pass pass, std::vector<Access> accesses);
  // Ranks exchange this of each copy of a token: `rows` by expert, at the token's rank; and at the expert's rank
  // `came`, by rank and then by expert, and `sorted` by expert. A rank with one expert has `sorted` for both.
  struct Exchanged {
    std::string name;
    View rows, came, sorted;
  };
  // Sends rows to the ranks that have the experts, and sorts those that come. `beside` is written behind the first of
  // them.
  void dispatch(Phase phase, const std::vector<Exchanged>& all, const std::function<void()>& beside);
  void combine(Phase phase, const std::vector<Exchanged>& all);  // the way back
  void exchange(const std::string& name, Phase phase, CollectiveKind kind, const View& from, const View& to);
  SortByExpert sort(Pass pass, std::int64_t cols) const;
  View came(TensorId received, const View& sorted) const {
    return exchanges() && local_ > 1 && !in_slots() ? w_.work(received) : sorted;
  }
  std::vector<Access> with_offsets(const View& from, const View& to, bool first) const;
  // Rows of experts in slots: for each rank that shares experts as many as may come from it (model/expert_slots.hpp).
  // A slot has rows by expert, and offsets and positions of its own; operations are one for each slot, from the rank's
  // own slot on.
  bool in_slots() const { return shape_.expert_slots; }
  std::int64_t slots() const { return in_slots() ? shape_.ep.size : 1; }
  std::int64_t slot_room() const { return capacity_ / slots(); }
  std::int64_t slot_mean() const { return (rows_ + slots() - 1) / slots(); }  // its rows when experts have equally many
  Expr rank_after(std::int64_t distance) const { return mod(shape_.ep.place + Expr(distance), Expr(shape_.ep.size)); }
  View slot_of(View all, const Expr& rank) const;
  static std::string slot_name(const std::string& name, std::int64_t slot) {
    return name + ".slot" + std::to_string(slot);
  }
  void sort_into_slots(const View& indices, const View& positions);
  // The product of a slot instead of one of all rows.
  GroupedGemm product_of_slot(Pass pass, std::int64_t n, std::int64_t k) const;
  // Writes the permutation of `x` to `rows`, or the way back, which adds up copies.
  void permute_rows(const std::string& name, Phase phase, Pass pass, bool apart, const View& x, const View& rows);
  bool exchanges() const { return shape_.ep.exists(); }
  // Rows of the pass go to the experts' ranks as codes with their scales. Their tokens become codes before.
  bool sends_codes(Phase phase) const {
    return exchanges() && (phase == Phase::forward ? shape_.low.sends_rows : shape_.low.sends_gradients);
  }
  std::int64_t code_cols() const { return code_shape(Dtype::e4m3, Scaling::mx, ScaledAlong::rows, 1, hidden_).cols; }
  void add_codes_on_the_way(const char* prefix, Phase phase);
  // Writes the cast of tokens to codes that are sent to layer `layer` of the experts, and returns these.
  View codes_to_send(const char* layer, Phase phase, const View& tokens);
  // Weight gradients of experts come when gradients of the experts' input are on the way.
  bool weights_come_late() const { return shape_.weights_apart || shape_.experts_weights_last; }
  bool pads() const { return shape_.expert_capacity > 0; }
  // This rank gathers the tokens of all ranks that share experts, and sorts the copies that go to its own.
  bool sorts_own() const { return local_ < experts_ && !exchanges(); }
  bool varies() const { return local_ < experts_ && !pads(); }
  std::int64_t room() const;
  // All-gathers [R,cols] of the ranks that sort their tokens together; otherwise `part` itself.
  View gathered(const std::string& name, const View& part, TensorId whole);
  View gathered_tokens(const std::string& name, Phase phase, const View& part);
  // The way back: sums `all` over these ranks into `part`.
  View summed(const std::string& name, Phase phase, const View& all, const View& part);
  TensorId kept(const std::string& name, std::int64_t rows, std::int64_t cols, BlockWriter::Role role = {}) const;
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, Dtype dtype) const;
  View of_layer(TensorId tensor) const { return w_.act(tensor, Coord::layer); }
  View weight(const char* name) const { return w_.parameter(name, Coord::layer); }
  void add_to_gradient(const std::string& name, const Work& work, std::vector<Access> read_by_it, const char* weight);
  bool cuts_tokens() const { return shape_.sequence_parallel; }
  bool gathers() const { return shape_.expert_tokens.exists() || (cuts_tokens() && shape_.expert_tp > 1); }
  const Group& gathering() const { return shape_.expert_tokens.exists() ? shape_.expert_tokens : shape_.tp; }

  Schedule& schedule_;
  BlockWriter& w_;
  const BlockShape& shape_;
  const Experts& model_;
  const std::vector<bool> layers_;
  const std::int64_t experts_, topk_, hidden_;
  // This rank's experts; the tokens that it sorts; with padding the rows of these for each expert. rows_ are the copies
  // of these tokens that it sorts, with padding; or where the number of rows varies, the rows of this rank's experts
  // when all have equally many, and capacity_ the room for them.
  const std::int64_t local_, tokens_, each_, rows_, capacity_;
  Mlp mlp_, shared_;
  TensorId logits_ = 0, indices_ = 0, counts_ = 0, offsets_ = 0, positions_ = 0, sorted_ = 0, weights_ = 0;
  TensorId all_offsets_ = 0;  // of the ranks that share experts
  // Workspaces forward.
  TensorId probabilities_ = 0, all_indices_ = 0, all_probabilities_ = 0, fc2_out_ = 0, sum_ = 0, part_ = 0;
  TensorId own_offsets_ = 0, all_tokens_ = 0;
  TensorId d_all_tokens_ = 0, d_sum_ = 0;  // backward, which may be concurrent
  // Rows on the way, forward and backward, which may be concurrent.
  struct OnTheWay {
    TensorId sent = 0, received = 0, sent_weights = 0, received_weights = 0;
    // With sends_codes(): codes of tokens, of rows that go and come, and of those that have come by expert.
    TensorId codes = 0, sent_codes = 0, received_codes = 0, sorted_codes = 0;
  } way_, d_way_;
  TensorId shared_sum_ = 0, shared_out_ = 0, gate_ = 0, gated_ = 0;  // shared_out_ and gate_ are kept with a gate
  // Workspaces backward.
  TensorId d_sorted_ = 0, d_in_ = 0;  // gradients of fc2's output and of fc1's input, which may share a place
  TensorId d_weights_ = 0, d_all_probabilities_ = 0, d_probabilities_ = 0, d_logits_ = 0;
  TensorId d_router_ = 0;  // d_logits_ in the type that products have
  TensorId d_shared_all_ = 0, d_shared_part_ = 0, d_shared_out_ = 0, d_gate_ = 0;
};

}  // namespace stretto
