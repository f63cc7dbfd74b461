#pragma once
#include <cstdint>
#include <vector>

#include "model/layout.hpp"
#include "model/schedule/state.hpp"
#include "model/transformer.hpp"

namespace stretto {

// How tensor parallelism cuts a model over its ranks (Megatron-LM's ColumnParallelLinear, RowParallelLinear and
// VocabParallelEmbedding; Shoeybi et al., arXiv 1909.08053). A rank has a run of the experts
// (expert_model_parallel_size), whole or cut like dense MLPs (expert_tensor_parallel_size).

// Returns the part of a parameter that each rank holds; all parts have one shape. Every segment divides by the ranks
// that cut it, and the number of experts by those that share them.
Parameter part_of(const Parameter& whole, const Parallel& parallel);

// Returns the cuts of `whole` that make up a rank's part, as expressions of the rank's coordinates.
std::vector<ArrayCut> cuts_of(const Parameter& whole, const Parallel& parallel);

// Returns whether every rank of the tp group has all of the parameter.
inline bool is_replicated(const Parameter& whole, std::int64_t tp) { return tp > 1 && whole.shard == Shard::none; }

}  // namespace stretto
