#pragma once
#include "model/graph/builder.hpp"

// The layers of the model, forward only and in the model's sizes: docs/adding.md says how to write one. A section of a
// layer goes from one point of the residual stream, `x`, to the next one, `out`.
namespace stretto::layers {

// x = wte[token] (+ wpe[position]), with dropout.
void embedding(Builder& g);
// out = x + proj(attention(rope(norms of heads(qkv(norm(x))))))
void attention(Builder& g, const LayerSpec& spec, const Slice& x, const Slice& out);
// q, k and v of multi-latent attention (LatentHeads in model/ops/rope.hpp), from the norm's output.
Slice latent_qkv(Builder& g, const Slice& x);
// out = x + out_proj(gated norm(linear attention(conv(in_proj(norm(x)))))), of the gated delta rule and of Mamba-2
void gated_delta(Builder& g, const Slice& x, const Slice& out);
void mamba(Builder& g, const Slice& x, const Slice& out);
// out = x + fc2(activation(fc1(norm(x))))
void mlp(Builder& g, const Slice& x, const Slice& out);
// out = x + Σ p · expert(norm(x)) over the experts that the router chooses, of probability p, (+ shared(norm(x)))
void experts(Builder& g, const Slice& x, const Slice& out);
// loss += cross entropy(weight · norm(x)); `weight` is the name of the output layer's parameter.
void head(Builder& g, const std::string& weight);

// The first section of a layer, of the kind that LayerSpec::mixer says.
void mixer(Builder& g, const LayerSpec& spec, const Slice& x, const Slice& out);
// All sections of a layer of this kind, from Given::input to Given::output.
void layer(Builder& g, const LayerSpec& spec);

}  // namespace stretto::layers
