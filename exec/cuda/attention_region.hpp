#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Consecutive queries that see consecutive keys, so that one fused kernel computes their attention. Queries and keys
// are those that the rank holds of one sequence, counted in the order of their positions: the region has queries
// [first_query, first_query + queries) and keys [0, keys). Query i of the region sees all of these keys or, when
// causal, all but the last queries − 1 − i: the last query sees them all.
struct AttentionRegion {
  std::int64_t first_query = 0, queries = 0, keys = 0;
  bool is_causal = false;
  bool operator==(const AttentionRegion&) const = default;
};

// Returns the regions in the order of their queries. Each query is in one of them, but for the first queries, which may
// see no key; later regions have as many keys or more. `first` of queries and keys must be constants. For zigzag parts
// of one size:
//   keys of the same parts    one region, causal, of all queries and keys
//   keys of an earlier rank   one region: all queries see the first half of the keys
//   keys of a later rank      one region: the second half of the queries sees all keys
//   all keys of the sequence  a causal region for each half of the queries, or one where the halves are neighbours
std::vector<AttentionRegion> regions_of(const Attention& work);

// Returns whether the queries or the keys are only a part of a sequence.
bool has_parts(const Attention& work);
// Returns whether the tokens of one sequence lie in consecutive rows, in the order of their positions.
inline bool lies_in_order(const SequenceParts& parts) { return parts.of == 1 || parts.count == 1; }

}  // namespace stretto::cuda
