#pragma once
#include "model/graph/graph.hpp"
#include "model/linear_layers.hpp"
#include "model/low_precision.hpp"
#include "model/recompute.hpp"
#include "model/transformer.hpp"

namespace stretto {

// The properties of the data that layers read.
struct TokenData {
  std::int64_t micro_batch_size = 1;
  bool masks_documents = false;   // attention does not cross documents,
  double document_tokens = 0;     // whose mean length this is; 0: unknown
  bool resets_positions = false;  // positions count from the beginning of a document
  bool masks_ends = false;        // the last token of a document has no target
};

// Operations that kernels do at once (docs/scenarios.md, the *_fusion keys).
struct Fusions {
  bool gelu = false, bias_gradient = false, gelu_bias_gradient = false, residual = false, norm_gradient = false;
};

// How layers share a sequence (model/passes/share_context.cpp): `exchange` · `ring` ranks.
struct ContextCut {
  std::int64_t exchange = 1, ring = 1;
  Expr exchange_place = {}, ring_place = {};
  bool gathers = false;     // all keys, in place of a ring
  std::string suffix = {};  // of the names of what layers with another cut do not have
};

// How ranks share and cut experts (model/passes/share_experts.cpp).
struct ExpertCut {
  std::int64_t ranks = 1, local = 0;  // that share experts, and the experts of each
  Expr first = 0;                     // of this rank's experts
  std::int64_t width_ranks = 1;       // that cut each expert
  bool exchanges = false;             // rows between ranks; otherwise ranks gather tokens where they share experts
  std::int64_t gathering = 1;         // ranks whose tokens each of them gathers
  bool gathers_over_tensor = false;   // these ranks are those of tensor parallelism
  double capacity = 0;                // Parallel::moe_expert_capacity_factor
  double rank_capacity = 0;           // Parallel::moe_expert_rank_capacity_factor
  bool in_slots = false;              // each pair of ranks has a slot for its rows
  Expr place = {};                    // of the rank among those that share experts
  bool in_transport = false;          // the kernel that exchanges rows also sorts them
  bool sums_balance = false;          // the balance loss sums over several ranks
  bool weights_last = false;          // weight gradients come after the way back of the rows' gradients
  bool shared_is_concurrent = false;  // a shared expert runs while ranks exchange rows
};

// Low precision of the layers of a kind (model/passes/precision.cpp).
struct CodesOf {
  LowPrecisionRules rules = {};
  bool acts = false;       // products are of codes
  bool is_mixed = false;   // products of other layers are of numbers
  bool in_passes = false;  // codes of weights are made in each pass of a layer
  std::int64_t count = 0;  // linear layers whose scales are one tensor
  struct Linear {
    LinearLayer size;
    std::int64_t index = 0, first = 0;  // among the linear layers, and among all their matrices
  };
  std::vector<Linear> linears = {};  // that have codes in some layer of the model
};

// The cuts of one rank, and the choices that passes follow.
struct Layout {
  const Transformer& model;
  TokenData data = {};
  std::int64_t tp = 1;
  Expr tp_place = {};
  bool sequence_parallel = false;
  SequenceParts parts = {};  // the tokens of each sequence that the rank has
  ContextCut context = {};
  ExpertCut experts = {};
  CodesOf codes = {};
  std::int64_t tokens = 0;         // of a micro-batch, on a rank that has all rows
  double loss_scale = 1;           // 1 / tokens of the global batch
  std::int64_t micro_batches = 1;  // of a step
  bool rounds_statistics = false;  // statistics have more bits than factors of products
  bool trains = true;              // parameters have gradients
  bool is_unfused = false;         // attention is separate operations
  Fusions fusions = {};
  Recompute recompute = {};
  // Weight gradients come after the backward pass, in units of a pipeline, for which their operands are kept, or before
  // the next layer's needs their place.
  bool weights_apart = false, weights_in_units = false;
  bool concurrent_passes = false;  // of different micro-batches, which share no workspace

  bool cuts(Dim dim) const { return tp > 1 && (dim == Dim::heads || dim == Dim::ffn || dim == Dim::vocab); }
  std::int64_t ways(Dim dim) const { return cuts(dim) ? tp : 1; }
  // Returns whether a rank has a part of the tokens of this value (Korthikanti et al., arXiv 2205.05198).
  bool cuts_tokens_of(const Value& value) const {
    return sequence_parallel && value.rows.dim == Dim::tokens && !value.is_whole && !cuts(value.cols.dim);
  }
  // This rank's sizes; of experts' values only after share_experts().
  std::int64_t rows_of(const Value& value) const {
    if (value.rows.dim == Dim::tokens) return cuts_tokens_of(value) ? tokens / tp : tokens;
    return value.rows.size / ways(value.rows.dim);
  }
  std::int64_t cols_of(const Value& value) const { return value.cols.size / ways(value.cols.dim); }
  std::int64_t rows_of(const LayerGraphs& graphs, const Slice& slice) const {
    const Value& value = graphs.of(slice);
    return slice.rows > 0 ? slice.rows / ways(value.rows.dim) : rows_of(value);
  }
  std::int64_t cols_of(const LayerGraphs& graphs, const Slice& slice) const {
    return slice.cols / ways(graphs.of(slice).cols.dim);
  }
};

}  // namespace stretto
