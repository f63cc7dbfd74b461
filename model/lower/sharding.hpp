#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/state.hpp"
#include "model/transformer.hpp"

namespace stretto {

// How tensor parallelism cuts a model over `tp` ranks (Megatron-LM's ColumnParallelLinear, RowParallelLinear and
// VocabParallelEmbedding; Shoeybi et al., arXiv 1909.08053).

// Returns the part of a parameter that each rank holds; all parts have one shape. Every segment divides by tp.
Parameter part_of(const Parameter& whole, std::int64_t tp);

// Returns the cuts of `whole` that make up a rank's part, as expressions of the coordinate tp.
std::vector<ArrayCut> cuts_of(const Parameter& whole, std::int64_t tp);

// Returns whether every rank of the tp group has all of the parameter.
inline bool is_replicated(const Parameter& whole, std::int64_t tp) { return tp > 1 && whole.shard == Shard::none; }

}  // namespace stretto
