#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/lower/block_writer.hpp"
#include "model/lower/context_attention.hpp"
#include "model/lower/expert_layers.hpp"
#include "model/lower/latent_projections.hpp"
#include "model/lower/placed_values.hpp"
#include "model/lower/quantised_linears.hpp"
#include "model/lower/unfused_attention.hpp"

namespace stretto {

// Activations that forward keeps for backward: families over layers and slots.
struct KeptActivations {
  TensorId x = 0;  // residual stream: x of layer l is its input, x of layer l + 1 its output
  TensorId ln_1 = 0, ln_1_stats = 0, qkv = 0, attention = 0;
  TensorId projected = 0, q_norm_stats = 0, k_norm_stats = 0;  // q, k and v before the norms of q and k
  TensorId lse = 0;                                            // of fused attention
  TensorId x_mid = 0;                                          // residual stream between attention and mlp
  TensorId ln_2 = 0, ln_2_stats = 0, act = 0;
  TensorId fc1 = 0, gate = 0, up = 0;  // gate and up replace fc1 where only one of them is kept
};

// Workspaces of a pass. Forward and backward have separate ones, because the two may be interleaved.
struct ForwardTransients {
  TensorId branch = 0;       // output of proj and fc2 before the residual addition; unused with residual_fusion
  TensorId branch_part = 0;  // this rank's rows of the sum
};
struct BackwardTransients {
  View d_x;               // gradient of the residual stream, in a buffer of the chunk's boundary (Call::buffer)
  TensorId d_hidden = 0;  // gradient of a norm's output
  TensorId d_part = 0;    // this rank's rows of the summed d_hidden
  TensorId d_attention = 0;
  View d_qkv, d_fc1, d_act;
  View d_attended;     // gradient of attention's input; d_qkv is the gradient before the norms of q and k
  View d_branch;       // gradient of dropout's input
  View d_proj, d_fc2;  // gradients of the terms that these layers add to the residual stream, where they are not in d_x
};

// Appends sections of the model's layers to the block that `writer` has begun; set_kind() comes before a layer's. Each
// has a forward and a backward pass between two points of the residual stream. Weight gradients are in the block of the
// backward pass, or in a separate one (BlockWriter::begin). Borrowed references must outlive this object.
class Sections {
 public:
  // Adds activations and workspaces, which the ends of the model share (`values`).
  Sections(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, const DelayedScaling* delayed,
           PlacedValues& values);

  // Sets the kind of the layers that are written next.
  void set_kind(const LayerKind& kind) {
    kind_ = kind;
    w_.set_codes(linears_ ? &*linears_ : nullptr, kind.in_codes);
  }
  // Makes the codes of a layer's weights.
  void quantise_weights(Phase phase = Phase::forward) { linears_->quantise_weights(kind_.spec, phase); }

  void attention_forward(const View& in, const View& out);
  void attention_backward(const View& in);
  void mlp_forward(const View& in, const View& out);
  void mlp_backward(const View& in);
  void experts_forward(const View& in, const View& out);
  void experts_backward(const View& in);
  void light_forward(const View& in);  // operations of a layer that Recompute::Granularity::selective_op repeats

  const KeptActivations& kept() const { return kept_; }
  TensorId gradient() const { return dx_; }

 private:
  void add_layer_activations();
  void add_transients();
  void add_linears(const DelayedScaling* delayed);
  bool computes_input_again(QuantisedLayer layer) const;
  void add_output_gradients();
  View branch_gradient(const std::string& residual, const std::string& layer, const View& branch, DropoutSite site);
  View of_layer(TensorId tensor) const { return w_.act(tensor, Coord::layer); }
  void row_layer(const std::string& name, std::int64_t in, const View& input, const std::string& addition,
                 const View& before, const View& after, DropoutSite site);
  View qkv() const { return of_layer(kept_.qkv); }
  // The columns of q, k and v in one matrix.
  struct Columns {
    View q, k, v;
  };
  Columns columns_of(const View& qkv) const;
  void normalise_heads();
  void normalise_heads_backward();
  View project_backward();
  bool has_dense_mlps() const;
  // Returns whether weight gradients of experts' layers read the gradient of the residual stream.
  bool reads_stream_late() const { return model_.experts.has_shared() && !model_.experts.moe_shared_expert_gate; }
  std::vector<bool> layers_with(bool (*has)(const LayerSpec&)) const;
  bool has_gate_apart() const { return selects_ops() && model_.swiglu; }
  bool makes_x_mid_again() const { return selects_ops() && !shape_.tp.exists(); }
  bool selects_ops() const { return shape_.recompute.granularity == Recompute::Granularity::selective_op; }
  std::vector<Access> before_activation() const;
  void activation();
  bool repeats(Recompute::Module module) const { return shape_.recompute.repeats(module); }
  void attention_norm(const View& in);
  void mlp_norm(const View& in);
  void mlp_inner();
  View row_sum(const std::string& name, std::int64_t in, const View& input);
  void up_forward(const View& x);
  void attention_core(const std::string& suffix);

  Schedule& schedule_;
  BlockWriter& w_;
  const BlockShape& shape_;
  const Transformer& model_;
  // This rank's sizes of all that tensor parallelism cuts.
  const std::int64_t ffn_, heads_, kv_heads_, attended_, qkv_size_, fc1_size_;
  const std::string act_;  // name of the MLP's activation
  KeptActivations kept_;
  std::vector<ContextAttention> context_;  // [kind] with context parallelism; each then has its own lse
  LayerKind kind_;
  ForwardTransients forward_;
  BackwardTransients backward_;
  TensorId dx_ = 0;
  std::optional<UnfusedAttention> unfused_;
  std::optional<LatentProjections> latent_;
  std::optional<ExpertLayers> experts_;
  std::optional<QuantisedLinears> linears_;
};

// A section: the operations of a layer between two points of the residual stream. `product` is its last linear layer,
// whose output is only added to the residual stream.
struct Section {
  const char* product;
  void (Sections::*forward)(const View& in, const View& out);
  void (Sections::*backward)(const View& in);
};
// Returns the sections of a layer, from its input to its output.
std::vector<Section> sections_of(const LayerSpec& layer);

}  // namespace stretto
