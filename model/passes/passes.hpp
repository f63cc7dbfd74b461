#pragma once
#include "model/graph/layout.hpp"

// Passes over the graphs of one kind of layer, or of the input or the head, in the order in which they run (see
// derive()). No pass knows the operations of a layer by name: it reads works, fields of nodes and values, and the
// layout.
namespace stretto::passes {

// Makes separate operations of attention: scores, softmax, dropout, context. Needs no derived node.
void unfuse_attention(LayerGraphs& graphs, const Layout& layout);

// With context parallelism: attention with keys of other ranks. Needs no derived node.
void share_context(LayerGraphs& graphs, const Layout& layout);

// The ranks that share experts: rows of tokens are exchanged, or tokens gathered, and sizes become the rank's. Every
// move is the adjoint of the move the other way. Needs no derived node.
void share_experts(LayerGraphs& graphs, const Layout& layout);

// Dimensions of weights that tensor parallelism cuts decide who communicates: a product whose outputs are cut reads all
// tokens (Move::enter), one whose inputs are cut makes a term of a sum (Move::leave). The bias of a product whose
// result is added to the residual stream goes to that addition, after the sum, where it is added once. Without tensor
// parallelism only the latter.
void share_tensor(LayerGraphs& graphs, const Layout& layout);

// Writes the backward pass of `forward`. The first term of a gradient is written, later ones are added. A gradient of
// the residual stream is accumulated in place.
void differentiate(LayerGraphs& graphs, const Layout& layout);

// Orders the terms of a gradient: what a collective writes or sums comes first, and then the terms that every rank has
// in full, which must not be summed over ranks.
void settle(LayerGraphs& graphs, const Layout& layout);

// Experts' weight gradients may come after the way back of the rows' gradients. A shared expert's gradients come before
// those of the rows' permutation, or in both passes while ranks exchange rows.
void order(LayerGraphs& graphs, const Layout& layout);

// Products of the linear layers of Layout::codes become products of codes. Quantising commutes with gathering, so codes
// are gathered; weight gradients read codes, and what these were made of is not kept.
void precision(LayerGraphs& graphs, const Layout& layout);
// Linear layers whose products are of numbers, in a model where other layers' are of codes, have names of their own.
void name_numbers(LayerGraphs& graphs, const Layout& layout);
// Appends a copy of the gradient of the residual stream for weight gradients of this node's section.
void keep_gradient(LayerGraphs& graphs, const Layout& layout, const Node& reader, const Slice& source);

// Pairs of nodes become one where Layout::fusions says so.
void fuse(LayerGraphs& graphs, const Layout& layout);

// With Recompute::selective_op a gated product becomes two, so that one of its halves can be kept.
void halve_gates(LayerGraphs& graphs, const Layout& layout);

// Moves deferrable weight gradients from `backward` to `weights`. A gradient that they read and that is accumulated in
// place is copied first.
void split_weights(LayerGraphs& graphs, const Layout& layout);

// Repeats forward nodes: modules in `backward`, and in `again` the nodes of selective_op.
void recompute(LayerGraphs& graphs, const Layout& layout);

// Nobody keeps what a collective gathers. A node that reads it after its workspace has been taken gathers it again.
void regather(LayerGraphs& graphs, const Layout& layout);

// Sets Value::is_kept: what backward passes read of the forward pass, and deferred weight gradients of the backward
// pass.
void mark_kept(LayerGraphs& graphs, const Layout& layout);

// Without Layout::trains removes the gradients of parameters. What they would read stays kept: frameworks keep it too.
void freeze(LayerGraphs& graphs, const Layout& layout);

// Runs all of them.
void derive(LayerGraphs& graphs, const Layout& layout);

// Returns the values that nodes read before any of them writes them.
std::vector<ValueId> live_into(const std::vector<Node>& nodes);

// Returns how many forward nodes, from the first one on, the layer's own backward pass needs when the layer is computed
// again; with `whole` all but what would overwrite the layer's output.
std::size_t needed_by_backward(const LayerGraphs& graphs, bool whole);

// Returns which of `nodes` make the `wanted` values, or what these need in turn: [node]. `kept` exist already.
std::vector<bool> needed(const std::vector<Node>& nodes, std::vector<ValueId> wanted,
                         const std::vector<ValueId>& kept = {});

}  // namespace stretto::passes
