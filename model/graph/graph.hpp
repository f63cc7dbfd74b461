#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// The graph of one kind of layer for one micro-batch: values, and nodes that compute them. model/layers writes the
// forward nodes, in sizes of the whole model and with no word of ranks, codes, recomputation or buffers. model/passes
// derives all else. model/lower places the values in memory and writes the nodes as operations. docs/adding.md has an
// example.

// A dimension that ranks may cut.
enum class Dim : std::uint8_t {
  none,
  tokens,
  heads,
  ffn,
  vocab,
  expert_rows,   // copies of tokens, sorted by expert
  expert_width,  // of one expert
  experts,       // rows of all experts' weights
};
struct Extent {
  Dim dim = Dim::none;
  std::int64_t size = 1;  // of the whole model; of `tokens`: those of a micro-batch on all ranks that share a sequence
};

enum class ValueKind : std::uint8_t {
  activation,  // in the type of the step
  statistics,  // in the accumulation type
  integers,    // i32
  parameter,   // and gradients of parameters
  given,       // an array that exists outside of the layer (Given)
};

// A kind of parameter. Weight decay does not apply to a vector. A buffer is saved with the parameters, but no gradient
// changes it.
enum class ParameterKind : std::uint8_t { matrix, vector, buffer };

// Arrays that a layer gets from outside.
enum class Given : std::uint8_t {
  none,
  input,            // residual stream before the layer
  between,          // and between its sections
  output,           // and after it
  stream_gradient,  // gradient of the residual stream, one buffer for a layer's input, middle and output
  tokens,
  targets,
  dropout_key,
  documents,
  loss,
  loss_weight,
  // state of delayed scaling: scales of factors, and their largest magnitudes
  forward_scales,
  forward_amaxes,
  backward_scales,
  backward_amaxes,
};

using ValueId = std::uint32_t;

// Columns [first, first + cols) and rows [first_row, first_row + rows) of a value, in the model's sizes; rows 0: all.
// `offset`: the elements of this rank's array that lie before its part, where the place of the rank decides.
struct Slice {
  ValueId value = 0;
  std::int64_t first = 0, cols = 0;
  std::int64_t first_row = 0, rows = 0;
  Expr offset = 0;
  bool operator==(const Slice&) const = default;
  // Returns these columns of another value.
  Slice of(ValueId other) const { return {other, first, cols, first_row, rows, offset}; }
};

struct Value {
  std::string name;      // of its tensor; workspaces of one name are one tensor
  std::string gradient;  // name of its gradient
  Extent rows, cols;
  ValueKind kind = ValueKind::activation;
  Given given = Given::none;
  TensorRole role = TensorRole::none;
  TensorRole gradient_role = TensorRole::none;
  bool is_whole = false;     // every rank has all rows, although other values of tokens are cut
  bool is_gradient = false;  // of an activation or a parameter
  bool is_gathered = false;  // a collective has put it together: nobody keeps it, later readers gather again
  bool is_layered = true;    // a parameter of each layer
  ParameterKind parameter = ParameterKind::matrix;  // where `kind` is parameter
  std::vector<std::int64_t> segments = {};          // of the columns, that ranks cut separately; none: one
  std::optional<ValueId> gradient_of = {};
  std::string terms = {};              // name of the workspace of its terms, where ranks sum it; "": of all such sums
  std::int64_t filled_rows = 0;        // of these rows, when experts have equally many; 0: all
  std::optional<Slice> alias_of = {};  // the same numbers in the same place, with a gradient of its own
  std::int64_t slots = 1, slot = 0;    // buffers of a workspace, and which one the value is in
  bool alternates = false;             // between two buffers, from layer to layer
  // Workspaces of one place are one storage, of whatever kind the layer is; one list for each direction, -1: in none.
  int pool_place = -1, gradient_pool_place = -1;
  bool is_family = false;            // of a tensor of all layers, also where no backward pass reads it
  std::optional<Dtype> dtype = {};   // of codes and their numbers; otherwise `kind` decides
  bool is_shared = false;            // one tensor of several linear layers, each with columns of its own
  bool is_of_weights = false;        // made of a layer's weights once a step
  std::int64_t filled_elements = 0;  // as filled_rows, of codes
  bool is_read_later = false;        // a backward pass reads it after its own pass has ended
  bool is_kept = false;   // a backward pass reads it after the layer's own forward pass or backward pass has ended
  bool is_again = false;  // a backward pass computes it again
};

struct Operand {
  AccessMode mode = AccessMode::read;
  Slice slice;
  bool reads() const { return mode != AccessMode::write; }
  bool writes() const { return mode != AccessMode::read; }
};
inline Operand reads(Slice slice) { return {AccessMode::read, std::move(slice)}; }
inline Operand writes(Slice slice) { return {AccessMode::write, std::move(slice)}; }
inline Operand adds(Slice slice) { return {AccessMode::accumulate, std::move(slice)}; }

// The ranks among which a node communicates.
enum class Ranks : std::uint8_t {
  tensor,
  exchange,       // of context parallelism, those that exchange tokens for heads
  ring,           // of context parallelism, those of a ring
  experts,        // those that share experts and exchange rows
  expert_counts,  // the same, for counts of rows
  expert_tokens,  // those that gather tokens because they cut or share experts
  balance,        // those over which the balance loss of a router sums
};

// A movement of activations between ranks. `enter` and `leave` are f and g of Megatron-LM (arXiv 1909.08053, figure 3),
// or with sequence parallelism g and its conjugate (arXiv 2205.05198, figure 5); their gradients are `sum` and
// `gather`.
enum class Move : std::uint8_t { none, enter, leave, sum, gather };

using NodeId = std::uint32_t;

struct Node {
  Work work;                      // of the whole model; fit() makes it that of a rank
  std::vector<Operand> operands;  // as model/ops lists them; none: no operation in this direction
  std::string base, what;         // "fc1" and "fprop", or a derived pass's "dgrad"
  Phase phase = Phase::forward;
  Module module = Module::none;
  Recomputed recomputed = Recomputed::none;
  Move move = Move::none;
  Ranks ranks = Ranks::tensor;
  Factor codes_of = Factor::none;  // makes codes, or scales of codes, of this factor
  bool is_right_before = false;    // a gather in `gathers`, which comes right before its reader
  bool is_concurrent = false;      // with the node before: a message that arrives while another is sent
  Slice from, to;                  // of a Move, also where there is no operation in this direction
  NodeId id = 0;
  NodeId of = 0;             // the forward node that this is a gradient of
  std::uint8_t section = 0;  // of the layer, from its input on
  std::uint8_t branch = 0;   // nodes of different branches do not depend on each other; 0: of none
  std::uint8_t bundle = 0;   // consecutive nodes of a bundle keep their order in the backward pass; 0: of none
  bool is_linear = false;    // a product with a weight
  // 1 or 2: the half of a function that needs no rows of experts, so that it may run while ranks exchange these: the
  // first half on the way to the experts, and the second one on the way back
  std::uint8_t concurrent_half = 0;
  // the function that frameworks checkpoint and that this is a part of; of others only `module` decides
  Recomputed function = Recomputed::none;
  bool adds_to_stream = false;          // the addition at the end of a section
  std::string term = {};                // of this addition: the layer that has made what is added
  bool is_deferrable = false;           // a weight gradient, or a product whose one may come after the backward pass
  std::optional<Slice> late_bias = {};  // bias of this product, which the addition after the sum over ranks adds
  std::int64_t slot = -1;               // of experts' rows, of each pair of ranks; -1: of all rows
  std::string suffix = {};              // of the name, where kinds of layers have different operations

  const Slice& result() const { return operands.back().slice; }
  bool is_recomputed() const { return recomputed != Recomputed::none; }
  bool writes_value(ValueId value) const;
  bool reads_value(ValueId value) const;
};

// Name of the node's operation: "fc1.dgrad", "attention.fprop.recompute".
std::string name_of(const Node& node);

// The graphs of one kind of layer; they share one table of values.
struct LayerGraphs {
  std::vector<Value> values;
  std::vector<Node> forward, backward;
  std::vector<Node> weights;           // weight gradients that come after the backward pass
  std::vector<Node> quantise_weights;  // codes of weights, made once a step
  std::vector<Node> gathers;           // of values that only weight gradients read, made where they need them
  std::vector<Node> again;  // operations of the forward pass that are a block of their own before the backward pass
  NodeId next = 0;

  ValueId add(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size() - 1);
  }
  Slice whole(ValueId value) const { return {value, 0, values[value].cols.size}; }
  Value& of(const Slice& slice) { return values[slice.value]; }
  const Value& of(const Slice& slice) const { return values[slice.value]; }
};

}  // namespace stretto
